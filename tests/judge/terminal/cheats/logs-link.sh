# makes /logs a link into the work directory
mkdir -p mine/verifier
echo 1 > mine/verifier/reward.txt
rm -rf /logs
ln -s /app/mine /logs
