#!/bin/sh
# First program of a lab's virtual machine: loads the modules, makes the host's files the root, read-only below what the machine writes
# (which is memory), and becomes `crosslane-keeper machine`. The words xl.keeper=, xl.folder=, xl.host= of the kernel's command line say
# which lab and host.
export PATH=/bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys

stop() {
    echo "crosslane machine: $1"
    poweroff -f
}

# Word xl.$1= of the command line.
word() {
    for given in $(cat /proc/cmdline); do
        case $given in xl.$1=*) echo "${given#*=}" ;; esac
    done
}

keeper=$(word keeper) folder=$(word folder) name=$(word host)
while read -r module options; do
    # shellcheck disable=SC2086 # several options
    insmod "/modules/$module.ko" $options || stop "cannot load $module"
done </modules/order
mkdir /host /new /written
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || stop "cannot mount the host's files"
mount -t tmpfs none /written
mkdir /written/upper /written/work
mount -t overlay -o lowerdir=/host,upperdir=/written/upper,workdir=/written/work none /new || stop "cannot mount the root"
# The kernel's own NTB drivers, for who wants them: the first file system is gone after this.
mkdir -p /new/run/crosslane-modules
cp /modules/*.ko /new/run/crosslane-modules
for place in proc sys dev; do mount --move /$place /new/$place || stop "/$place is missing"; done
mkdir -p /new/dev/shm /new/dev/pts
mount -t tmpfs none /new/dev/shm
mount -t devpts none /new/dev/pts
exec switch_root /new "$keeper" machine "$folder" "$name"
stop "cannot become the keeper"
