# puts a folder where the reward goes
mkdir -p /logs/verifier/reward.txt
