# leaves programs that run as their owner
# only looks
cp /usr/bin/bash b
chmod 6755 b
./b -p -c 'cat @TESTS@/answer.txt' > out.txt
