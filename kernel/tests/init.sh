#!/bin/sh
# First program of the tests' virtual machine: loads the modules, runs each test, powers off. A line `ok NAME` or `FAILED NAME: why` each.
export PATH=/bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t debugfs none /sys/kernel/debug
debug=/sys/kernel/debug

load() {
    module=$1
    shift
    insmod "/modules/$module.ko" "$@"
}

# Whether the test named $1, the command behind it, succeeds.
test_that() {
    name=$1
    shift
    if said=$("$@" 2>&1); then echo "ok $name"; else echo "FAILED $name: $(echo "$said" | tail -n 3 | tr '\n' ' ')"; fi
}

pingpong() {
    load ntb_pingpong delay_ms=10 && sleep 2 || return
    for count in "$debug"/ntb_pingpong/*/count; do
        [ "$(cat "$count")" -gt 20 ] || { echo "$count: $(cat "$count")"; return 1; }
    done
    rmmod ntb_pingpong
}

perf() {
    load ntb_perf max_mw_size=0x400000 total_order=24 && sleep 1 || return
    for run in "$debug"/ntb_perf/*/run; do
        echo 0 >"$run" || { dmesg | tail -n 3; return 1; }
        grep -q "copied 16777216 bytes" "$run" || { cat "$run"; return 1; }
    done
    rmmod ntb_perf
}

netdev() {
    load ntb_transport && load ntb_netdev && sleep 1 || return
    # One end in a network namespace of its own, or the kernel would take the short way.
    unshare -n sleep 60 &
    there=$!
    sleep 0.5
    ip link set eth1 netns $there && ip address add 10.0.0.1/24 dev eth0 && ip link set eth0 up || return
    nsenter -t $there -n sh -c 'ip address add 10.0.0.2/24 dev eth1 && ip link set eth1 up' || return
    sleep 1
    ping -c 20 -i 0.1 -s 8000 -W 2 10.0.0.2 || return
    kill $there
    rmmod ntb_netdev && rmmod ntb_transport
}

tool() {
    load ntb_tool && sleep 0.5 || return
    set -- "$debug"/ntb_tool/*
    echo 1 >"$1/link" && echo 1 >"$2/link" && sleep 0.2 && echo 0x1234 >"$1/peer0/spad3" || return
    [ "$(cat "$2/spad3")" = "0x1234" ] || { cat "$2/spad3"; return 1; }
    echo "s 0x5" >"$1/peer_db" && [ "$(cat "$2/db")" = 0x5 ] || { cat "$2/db"; return 1; }
    rmmod ntb_tool
}

# Nothing is left over.
unload() {
    rmmod ntb_soft && rmmod ntb && [ -z "$(lsmod | grep -E 'ntb')" ]
}

# Between two machines: this one is $1, the peer the other one.
between() {
    load ntb
    load ntb_soft window_len=0x100000 scratchpads=4 doorbells=4
    load crosslane_ntb
    segments "$1" | grep -E '^(ok|FAILED) '
    rmmod crosslane_ntb
    test_that "stock_pingpong_of_the_$1" pingpong
    test_that "stock_netdev_of_the_$1" netdev_between "$1"
}

# ntb_transport needs more scratchpads than 4.
netdev_between() {
    rmmod ntb_soft && load ntb_soft window_len=0x100000 && load ntb_transport && load ntb_netdev && sleep 2 || return
    if [ "$1" = first ]; then own=10.0.0.1 peer=10.0.0.2; else own=10.0.0.2 peer=10.0.0.1; fi
    ip address add $own/24 dev eth0 && ip link set eth0 up || return
    for _ in $(seq 60); do ping -c 1 -W 1 $peer >/dev/null && break; sleep 0.2; done
    ping -c 20 -i 0.1 -s 8000 -W 2 $peer || return
    # Long enough for the peer's pings.
    sleep 8
    rmmod ntb_netdev && rmmod ntb_transport
}

alone() {
    load ntb
    load ntb_soft base=0x10000000
    load crosslane_ntb
    segments | grep -E '^(ok|FAILED) '
    test_that kernel_port_passes_the_conformance_suite kernel-port --nocapture
    test_that crosslane_ntb_is_unloaded rmmod crosslane_ntb
    test_that stock_pingpong pingpong
    test_that stock_perf perf
    test_that stock_netdev netdev
    test_that stock_tool tool
    test_that ntb_soft_is_unloaded unload
}

# A daemon in a network namespace of its own, on one end of the pair.
host() {
    cat >/run/h$1.toml <<EOF
host = $1
control = "/run/h$1.sock"

[[port]]
name = "cable"
kind = "ntb"
cable = "/dev/crosslane$(($1 - 1))"
side = "$2"
EOF
    nsenter -t "$3" -n ip link set lo up
    nsenter -t "$3" -n crosslaned --config /run/h$1.toml >/run/h$1.log 2>&1 &
}

# Two daemons see each other, and IP goes between them.
daemons() {
    for _ in $(seq 100); do
        crosslane --socket /run/h1.sock ping -c 1 h2 >/dev/null 2>&1 && break
        sleep 0.2
    done
    crosslane --socket /run/h1.sock ping -c 10 h2 && nsenter -t $first -n ping -c 3 10.86.0.2 || { cat /run/*.log; return 1; }
}

# An unmodified program sends 64 MB, all of them by a stream.
iperf() {
    CROSSLANE_SOCKET=/run/h2.sock nsenter -t $second -n crosslane run -- iperf3 -s -1 >/run/server.log 2>&1 &
    sleep 3
    CROSSLANE_SOCKET=/run/h1.sock nsenter -t $first -n crosslane run -- iperf3 -c 10.86.0.2 -n 64M || { cat /run/*.log; return 1; }
    sent=$(crosslane --socket /run/h1.sock status --json | sed -n 's/.*"stream_tx_bytes": *\([0-9]*\).*/\1/p')
    [ "$sent" -gt 67108864 ] || { echo "$sent bytes by streams"; return 1; }
    wait $!
}

# What is in the violations' counters of both hosts.
no_violations() {
    for socket in /run/h1.sock /run/h2.sock; do
        crosslane --socket $socket status --json | grep -q '"violations": *0' || { cat /run/*.log; return 1; }
    done
}

streams() {
    mount -t tmpfs none /run
    load ntb
    load ntb_soft base=0x10000000 window_len=0x1000000
    load crosslane_ntb
    load tun && load inet_diag && load tcp_diag
    unshare -n sleep 1000 &
    first=$!
    unshare -n sleep 1000 &
    second=$!
    sleep 1
    host 1 a $first
    host 2 b $second
    test_that daemons_see_each_other_over_bridges daemons
    test_that unmodified_iperf3_goes_by_a_stream_over_bridges iperf
    test_that nobody_breaks_the_protocol_over_bridges no_violations
}

case $(cat /proc/cmdline) in
*role=streams*) streams ;;
*role=first*) between first ;;
*role=second*) between second ;;
*) alone ;;
esac
echo "all tests have run"
poweroff -f
