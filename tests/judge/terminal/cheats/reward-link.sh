# makes /logs/verifier a link to a folder of its own
mkdir -p mine
echo 1 > mine/reward.txt
rm -rf /logs/verifier
ln -s /app/mine /logs/verifier
