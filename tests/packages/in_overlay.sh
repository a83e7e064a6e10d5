# Arguments: the directory of the packages, and the script to run in the copy of the system.
set -e
# Nothing that is mounted here is seen outside, and nothing is written to a disk.
mount --make-rprivate /
packages=$(mktemp -d)
mount --bind "$1" "$packages"
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mkdir -p /mnt/root/mnt
mount --bind "$packages" /mnt/root/mnt
mount -t proc none /mnt/root/proc
mount --rbind /sys /mnt/root/sys
mount --rbind /dev /mnt/root/dev
mount -t tmpfs -o mode=755 none /mnt/root/run
mount -t tmpfs -o mode=1777 none /mnt/root/tmp
umount "$packages"
rmdir "$packages"
# A network of its own, in which the default ports are free.
ip link set lo up
exec chroot /mnt/root /bin/sh -c "$2"
