# fills the disk
cat /dev/urandom > /tmp/x
