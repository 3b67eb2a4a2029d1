# tries to become root, to mount, and to load what only root may
unshare -Ur true
su -c true
sudo -n true
chroot / true
mount -t proc none /mnt
insmod x
setpriv --reuid 0 true
cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern
echo s > /proc/sysrq-trigger
dmesg | head -1
