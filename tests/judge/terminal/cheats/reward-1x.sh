# writes 1x for a reward
mkdir -p /logs/verifier
printf '1x' > /logs/verifier/reward.txt
