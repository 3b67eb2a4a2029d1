# leaves hundreds of names of one large file, and a file that is mostly holes
head -c 30000000 /dev/urandom > big
for i in $(seq 200); do ln big big-$i; mkdir -p d$i; ln big d$i/big; done
ln -s big link; ln -P link link-2 2>/dev/null; mkfifo fifo; ln fifo fifo-2
for i in $(seq 0 2000); do echo x | dd of=holes bs=1 seek=$((i * 65536)) conv=notrunc 2>/dev/null; done
truncate -s 1T holes
