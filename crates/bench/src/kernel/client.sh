#!/bin/sh
# Changes what has the bridge of a virtual machine, or asks it something; runs in the machine, as its root. First argument: what is to be
# done. Whoever had the bridge before must have left it in both machines: the kernel's clients wait long for one of another kind.
set -eu
export PATH="$PATH:/usr/sbin:/sbin"
modules=/run/crosslane-modules
perf=/sys/kernel/debug/ntb_perf

die() {
    echo "$1" >&2
    exit 1
}

load() {
    name=$1
    shift
    [ -e "$modules/$name.ko" ] || die "the image has no module $name: make vm-image"
    insmod "$modules/$name.ko" "$@"
}

# Nobody has the bridge.
leave() {
    for name in ntb_netdev ntb_transport ntb_perf crosslane_ntb; do
        if [ -e "/sys/module/$name" ]; then rmmod "$name"; fi
    done
}

# Stock ntb_perf, which copies 2^$1 bytes in each of its runs.
perf() {
    grep -q ' /sys/kernel/debug ' /proc/mounts || mount -t debugfs none /sys/kernel/debug
    load ntb_perf max_mw_size=0x400000 "total_order=$1"
}

# Runs it, as soon as its link is up, and prints its statistics.
copy() {
    cd "$perf"/*
    for _ in $(seq 100); do
        if grep -q 'Link status: up' info && grep -q 'Out buffer size 0x0*[1-9a-f]' info; then
            echo 0 >run
            cat run
            exit
        fi
        sleep 0.2
    done
    cat info
    die "the link of ntb_perf does not come up"
}

# The interface that ntb_netdev has made: a machine has no other but these.
interface() {
    for it in /sys/class/net/*; do
        case ${it##*/} in lo | xl*) ;; *) echo "${it##*/}" ;; esac
    done
}

# Stock ntb_transport and ntb_netdev, with the address $1.
netdev() {
    load ntb_transport
    load ntb_netdev
    device=$(interface)
    ip address add "$1/24" dev "$device"
    ip link set "$device" up
}

# Waits until $1 answers.
reach() {
    for _ in $(seq 60); do
        if ping -c 1 -W 1 "$1" >/dev/null; then exit; fi
        sleep 0.2
    done
    die "$1 does not answer"
}

# Waits until something listens on the TCP port $1, four hexadecimal digits.
listen() {
    for _ in $(seq 200); do
        if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$1 0*:0000 0A"; then exit; fi
        sleep 0.1
    done
    die "nothing listens"
}

"$@"
