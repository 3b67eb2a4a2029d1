# leaves artifacts whose names and links lead out
cd /logs/artifacts
ln -s / root
ln -s ../../../../tmp up
ln -s /logs/verifier/reward.txt reward.txt
mkdir -p 'a/..%2f..%2f'
touch '..%2f..%2fescaped' $'new\nline' $'\xff\xfe'
ln -s root/etc/passwd deep
