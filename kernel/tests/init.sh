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
    if said=$("$@" 2>&1); then echo "ok $name"; else echo "$said" | sed 's/^/| /'; echo "FAILED $name: $(echo "$said" | tail -n 3 | tr '\n' ' ')"; fi
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
    test_that "flapping_pingpong_of_the_$1" flapping_between
}

# A link that goes down by itself at both ends, and trains again, while the two machines ring each other.
flapping_between() {
    rmmod ntb_soft && load ntb_soft window_len=0x100000 flap_ms=700 flaps=5 && load ntb_pingpong delay_ms=10 || return
    count=0
    for _ in $(seq 60); do
        count=$(cat "$debug"/ntb_pingpong/*/count)
        [ "$count" -gt 100 ] && break
        sleep 0.5
    done
    # Long enough for the other machine.
    sleep 5
    rmmod ntb_pingpong && [ "$count" -gt 100 ] || { echo "$count times"; return 1; }
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
    test_that memory_in_one_piece_is_had_and_given_back contiguous
    load dma_soft
    segments copies | grep -E '^(ok|FAILED) '
    rmmod dma_soft && load dma_soft align=6
    segments aligned | grep -E '^(ok|FAILED) '
    test_that dma_soft_is_unloaded rmmod dma_soft
    test_that kernel_port_passes_the_conformance_suite kernel-port --nocapture
    test_that crosslane_ntb_is_unloaded rmmod crosslane_ntb
    test_that stock_pingpong pingpong
    test_that stock_perf perf
    test_that stock_netdev netdev
    test_that stock_tool tool
    test_that ntb_soft_is_unloaded unload
}

# A word of the kernel's command line, $1=; $2 if it is not there.
word() {
    value=$(sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline)
    echo "${value:-$2}"
}

contiguous() {
    before=$(available)
    load contiguous_test && rmmod contiguous_test || return
    after=$(available)
    [ $((before - after)) -lt 4096 ] || { echo "available: $before KB, then $after KB"; return 1; }
}

# What the kernel says of faults of its own that need not stop it.
no_complaints() {
    if dmesg | grep -E 'WARNING:|BUG|Call Trace|blocked for more than|leak|refcount|still in use'; then return 1; fi
}

# KB of memory that is to be had, when what can be dropped is.
available() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sleep 1
    # What each processor keeps of free pages, and of counts.
    echo 1 >/proc/sys/vm/compact_memory
    cat /proc/sys/vm/stat_refresh
    sed -n 's/MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo
}

load_pair() {
    load ntb_soft base=0x10000000 "$@"
}

# Translation of memory that is not aligned is refused: crosslane_ntb and stock ntb_transport ask for more, stock ntb_perf gives up.
unaligned() {
    load_pair xlat_align=0x400000
    load crosslane_ntb
    segments | grep -E '^(ok|FAILED) ' | sed 's/ /&unaligned_/'
    rmmod crosslane_ntb
    test_that unaligned_stock_netdev netdev
    test_that unaligned_stock_perf_is_refused perf_refused
    rmmod ntb_soft
    # As ntb_hw_switchtec, which says a page and wants the window's length.
    load_pair xlat_align=0x400000 said_align=4096
    load crosslane_ntb
    segments cycle | sed 's/ /&alignment_that_was_not_said_/'
    rmmod crosslane_ntb && rmmod ntb_soft
}

perf_refused() {
    load ntb_perf max_mw_size=0x400000 total_order=24 && sleep 1 || return
    dmesg | grep "Unaligned inbuf" || return
    rmmod ntb_perf
}

# Links that go down by themselves.
flapping() {
    load_pair flap_ms=1500 flaps=5
    load crosslane_ntb
    segments flaps | grep -E '^(ok|FAILED) '
    rmmod crosslane_ntb && rmmod ntb_soft
    load_pair flap_ms=400 flaps=3
    test_that flapping_stock_pingpong pingpong
    rmmod ntb_soft
    load_pair flap_ms=400 flaps=3
    test_that flapping_stock_netdev netdev
    rmmod ntb_soft
}

# Through ntb_tool's window of the first end: what is stored lands; while the link is down it reads all ones and what is stored is lost.
ones() {
    load ntb_tool && sleep 0.5 || return
    set -- "$debug"/ntb_tool/*
    out=$1/peer0/peer_mw0 in=$2/peer0/mw0
    echo 1 >"$1/link" && echo 1 >"$2/link" && echo Y >"$1/peer0/link_event" && echo Y >"$2/peer0/link_event" || return
    echo 0x1000 >"$2/peer0/mw_trans0" && echo 0x0:0x1000 >"$1/peer0/peer_mw_trans0" || return
    seen abcdefgh abcdefgh abcdefgh || return
    echo 0 >"$2/link" && echo N >"$1/peer0/link_event" || return
    seen lostlost "$(printf '\377\377\377\377\377\377\377\377')" abcdefgh || return
    echo 1 >"$2/link" && echo Y >"$1/peer0/link_event" && echo Y >"$2/peer0/link_event" || return
    seen "" abcdefgh abcdefgh || return
    # ntb_tool of 6.1 frees the files of windows that are in use twice when it is unloaded.
    echo 0x0:0x0 >"$1/peer0/peer_mw_trans0" && echo 0 >"$2/peer0/mw_trans0" || return
    rmmod ntb_tool
}

# Stores $1 through $out; behind that the window shows $2 and the peer's memory, $in, has $3.
seen() {
    if [ -n "$1" ]; then printf %s "$1" >"$out" || return; fi
    sleep 0.3
    [ "$(head -c 8 "$out")" = "$2" ] && [ "$(head -c 8 "$in")" = "$3" ] || { head -c 8 "$out" | hexdump -C; head -c 8 "$in" | hexdump -C; return 1; }
}

# Stores land late. With the kernel's own clients, the device, and two daemons whose streams an unmodified program uses.
late() {
    mount -t tmpfs none /run
    load ntb
    late="window_len=0x100000 late_us=5000"
    load_pair $late
    load crosslane_ntb
    test_that late_kernel_port_passes_the_conformance_suite kernel-port --nocapture
    segments late | grep -E '^(ok|FAILED) '
    rmmod crosslane_ntb
    test_that late_stock_pingpong pingpong
    test_that late_windows_read_ones_while_the_link_is_down ones
    rmmod ntb_soft
    load_pair $late
    test_that late_stock_netdev netdev
    rmmod ntb_soft
    if [ -e /bin/crosslaned ]; then
        load tun && load inet_diag && load tcp_diag
        load_pair $late
        delay_us=50000 hosts
        test_that late_stores_join_daemons daemons
        test_that late_stores_carry_streams iperf
        test_that late_stores_see_no_violations no_violations
    fi
    test_that nothing_was_complained_of no_complaints
}

bad_parameters() {
    for bad in xlat_align=4096 xlat_align=12288 xlat_align=0x800000 said_align=4096 flap_ms=299 late_us=99 late_us=100001; do
        if load_pair $bad; then echo "$bad was taken"; return 1; fi
    done
}

# Bridges that are hard on their clients.
hard() {
    load ntb
    test_that parameters_that_cannot_be_are_refused bad_parameters
    if [ -e /bin/crosslaned ]; then
        mount -t tmpfs none /run
        load tun && load inet_diag && load tcp_diag
        streams_over_small_windows
    fi
    unaligned
    flapping
    test_that nothing_was_complained_of no_complaints
}

# With message registers: what one end of ntb_tool writes to a register the other one reads, and a register that is full takes no more.
tool_messages() {
    load ntb_tool && sleep 0.5 || return
    set -- "$debug"/ntb_tool/*
    echo 1 >"$1/link" && echo 1 >"$2/link" && sleep 0.5 && echo 0x1234 >"$1/peer0/msg1" || return
    grep -q "^0x00001234<-0" "$2/msg1" && [ "$(cat "$2/msg_sts")" = 0x2 ] || { cat "$2/msg1" "$2/msg_sts"; return 1; }
    echo 0x5678 >"$1/peer0/msg1"
    grep -q "^0x00001234<-0" "$2/msg1" && [ "$(cat "$1/msg_sts")" = 0x20 ] || { cat "$2/msg1" "$1/msg_sts"; return 1; }
    echo "c 0x2" >"$2/msg_sts" && echo "c 0x20" >"$1/msg_sts" && echo 0x5678 >"$1/peer0/msg1" || return
    grep -q "^0x00005678<-0" "$2/msg1" && [ "$(cat "$1/msg_sts")" = 0x0 ] || { cat "$2/msg1" "$1/msg_sts"; return 1; }
    rmmod ntb_tool
}

# ntb_tool sees each of three ends' two peers, and messages say who sent them.
tool_peers() {
    load ntb_tool && sleep 0.5 || return
    set -- "$debug"/ntb_tool/*
    for end in "$@"; do echo 1 >"$end/link"; done
    sleep 0.5
    for end in "$@"; do
        [ "$(cat "$end/peer0/link" "$end/peer1/link")" = "$(printf 'Y\nY')" ] || { cat "$end"/peer?/link; return 1; }
    done
    echo 0x11 >"$1/peer1/msg0" && echo 0x22 >"$2/peer1/msg1" || return
    grep -q "^0x00000011<-0" "$3/msg0" && grep -q "^0x00000022<-1" "$3/msg1" || { cat "$3"/msg?; return 1; }
    echo "c 0x3" >"$3/msg_sts" || return
    echo 0 >"$2/link" && sleep 0.5
    [ "$(cat "$1/peer0/link" "$1/peer1/link")" = "$(printf 'N\nY')" ] || { cat "$1"/peer?/link; return 1; }
    rmmod ntb_tool
}

# ntb_transport wants scratchpads, and bridges that translate their own windows.
transport_refused() {
    load ntb_transport && sleep 0.5 || return
    if ls -d /sys/bus/ntb/drivers/ntb_transport/584c*; then return 1; fi
    rmmod ntb_transport
}

# The device's tests on what is loaded, named $1_..; the rest are words for the test program.
device_tests() {
    prefix=$1
    shift
    load crosslane_ntb
    segments "$@" | grep -E '^(ok|FAILED) ' | sed "s/ /&${prefix}_/"
}

# Stock ntb_perf, on registers that are empty: it loses a command if ntb_pingpong has left a message in its register.
fresh_perf() {
    prefix=$1
    shift
    load_pair "$@"
    test_that "${prefix}_stock_perf" perf
}

# Bridges without scratchpads, but with message registers.
messages() {
    load_pair scratchpads=0 messages=1 doorbells=1
    device_tests messages
    rmmod crosslane_ntb && rmmod ntb_soft
    load_pair scratchpads=0 messages=4
    test_that messages_stock_pingpong pingpong
    rmmod ntb_soft
    fresh_perf messages scratchpads=0 messages=4
    test_that messages_stock_tool tool_messages
    test_that messages_stock_transport_is_refused transport_refused
    rmmod ntb_soft
}

# Bridges that translate the windows that they store through, only.
outbound() {
    load_pair scratchpads=0 messages=4 outbound_translation=1
    device_tests outbound outbound
    test_that outbound_kernel_port_passes_the_conformance_suite kernel-port --nocapture
    rmmod crosslane_ntb
    test_that outbound_stock_pingpong pingpong
    rmmod ntb_soft
    fresh_perf outbound scratchpads=0 messages=4 outbound_translation=1
    test_that outbound_stock_transport_is_refused transport_refused
    rmmod ntb_soft
}

# Messages land behind stores that land late.
late_messages() {
    load_pair window_len=0x100000 scratchpads=0 messages=1 outbound_translation=1 late_us=5000
    device_tests messages late
    rmmod crosslane_ntb && rmmod ntb_soft
}

# A peer that says nonsense: ntb_tool has the other end of a pair, and what it does is the test program's.
hostile() {
    load_pair scratchpads=0 messages=4 outbound_translation=1
    load crosslane_ntb
    echo 584c:00:01.0 >/sys/bus/ntb/drivers/crosslane_ntb/unbind
    load ntb_tool
    segments hostile | grep -E '^(ok|FAILED) '
    dmesg | grep -q "window 0 cannot lead to 1099511627776 bytes" || echo "FAILED hostile: nothing was said of a window that is too long"
    rmmod ntb_tool
    echo 584c:00:01.0 >/sys/bus/ntb/drivers/crosslane_ntb/bind
    segments cycle | grep -E '^(ok|FAILED) ' | sed 's/ /&behind_a_hostile_peer_/'
    rmmod crosslane_ntb && rmmod ntb_soft
}

# Three ends, each joined with each other.
three() {
    load_pair peers=2 windows=4 window_len=0x100000
    device_tests three peers
    rmmod crosslane_ntb && rmmod ntb_soft
    load_pair peers=2 windows=2 window_len=0x100000 scratchpads=0 messages=2 doorbells=2 outbound_translation=1
    device_tests three_outbound peers
    rmmod crosslane_ntb && rmmod ntb_soft
    # The fourth end's second device leads to the second end's third one.
    load_pair peers=3 windows=3 window_len=0x100000 doorbells=2
    export ENDS="0 3"
    device_tests four cycle
    export ENDS="5 10"
    segments cycle | grep -E '^(ok|FAILED) ' | sed 's/ /&four_across_/'
    unset ENDS
    rmmod crosslane_ntb && rmmod ntb_soft
    load_pair peers=2 windows=4 window_len=0x100000
    test_that three_stock_pingpong pingpong
    rmmod ntb_soft
    load_pair peers=2 messages=2
    test_that three_stock_tool tool_peers
    rmmod ntb_soft
}

bad_shapes() {
    for bad in messages=9 peers=0 peers=4 "peers=3 windows=2" "peers=2 late_us=1000" "scratchpads=0 outbound_translation=1"; do
        # shellcheck disable=SC2086 # several parameters
        if load_pair $bad; then echo "$bad was taken"; return 1; fi
    done
    for bad in messages=1 peers=2 outbound_translation=1; do
        if load ntb_soft $bad; then echo "$bad was taken without base"; return 1; fi
    done
}

# Bridges of other shapes.
shapes() {
    load ntb
    test_that shapes_that_cannot_be_are_refused bad_shapes
    messages
    outbound
    late_messages
    hostile
    three
    test_that nothing_was_complained_of no_complaints
}

# The pair of the command line's words shape= and ends=: parameters of ntb_soft, and two devices of one cable, with commas.
load_shape() {
    export ENDS="$(word ends 0,1 | tr , ' ')"
    # shellcheck disable=SC2046 # several parameters
    load_pair window_len=0x100000 $(word shape | tr , ' ')
}

# One cycle: load, a link down and up, a process that is killed while it maps segments, and unload; every other time the bridge goes first.
cycle() {
    load_shape && load crosslane_ntb && segments cycle || return
    segments hold >/run/hold &
    holder=$!
    for _ in $(seq 100); do grep -q holds /run/hold && break; sleep 0.1; done
    grep -q holds /run/hold || { cat /run/hold; return 1; }
    if [ $(($1 % 2)) = 0 ]; then rmmod ntb_soft || return; fi
    kill -9 $holder
    wait $holder
    rmmod crosslane_ntb || return
    if [ $(($1 % 2)) = 1 ]; then rmmod ntb_soft || return; fi
    [ -z "$(lsmod | grep -E 'ntb_soft|crosslane')" ]
}

# How many objects each cache of the slab allocator has, in the file $1.
objects() {
    awk 'NR > 2 { print $1, $3, $5 }' /proc/slabinfo >"$1"
}

# Caches that have more than $1 objects more than before, and than fit into two slabs: what is free in them and kept.
grown() {
    awk -v most="$1" 'NR == FNR { had[$1] = $2; next }
        $2 - had[$1] > most + 2 * $3 { print $1 " has " $2 - had[$1] " objects more" }' /run/objects.before /run/objects.after
}

# Caches of the kernel are as they will be behind the first two; afterwards no more than 2 MB may be missing, after however many cycles, and
# behind many no cache may have an object more for every second one.
cycles() {
    for number in 1 2; do cycle $number || return; done
    before=$(available)
    objects /run/objects.before
    for number in $(seq "$1"); do cycle "$number" || { echo "in cycle $number"; return 1; }; done
    after=$(available)
    echo "cycles: $1; available $before KB, then $after KB" >/dev/console
    [ $((before - after)) -lt 2048 ] || { echo "available: $before KB, then $after KB"; return 1; }
    objects /run/objects.after
    if [ "$1" -ge 200 ] && [ -n "$(grown $(($1 / 2)))" ]; then grown $(($1 / 2)); return 1; fi
}

# Random calls, and all of it over and over.
abuse() {
    mount -t tmpfs none /run
    echo 1 >/proc/sys/kernel/hung_task_panic
    echo 60 >/proc/sys/kernel/hung_task_timeout_secs
    echo 10 >/proc/sys/kernel/hung_task_check_interval_secs
    load ntb
    load dma_soft
    load_shape
    load crosslane_ntb
    segments fuzz "$(word fuzz_seconds 20)" $(word fuzz_seed '')
    test_that modules_unload_behind_random_calls eval 'rmmod crosslane_ntb && rmmod ntb_soft'
    # Long enough for copies to be under way when a process dies, or a bridge goes.
    echo 2000 >/sys/module/dma_soft/parameters/delay_us
    test_that cycles_leave_nothing cycles "$(word cycles 20)"
    test_that nothing_was_complained_of no_complaints
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
delay_us = ${delay_us:-100}
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

# Programs that send seldom, both ways, sleep in between, and are woken by bells: each end holds one of the other's.
bells() {
    CROSSLANE_SOCKET=/run/h2.sock nsenter -t $second -n crosslane run -- iperf3 -s -1 >/run/server.log 2>&1 &
    server=$!
    sleep 3
    CROSSLANE_SOCKET=/run/h1.sock nsenter -t $first -n crosslane run -- iperf3 -c 10.86.0.2 --bidir -b 16K -l 100 -t 8 >/run/client.log &
    client=$!
    held=0
    for look in 1 2 3 4 5 6 7; do
        sleep 1
        ls -l $(pidof iperf3 | sed 's|[0-9]*|/proc/&/fd|g') >/run/held.log 2>/dev/null
        held=$(grep -c ' -> /crosslane' /run/held.log)
        [ "$held" -lt 2 ] || break
    done
    wait $server $client
    [ "$held" -ge 2 ] || { echo "$held bells"; cat /run/*.log; return 1; }
}

# What is in the violations' counters of both hosts.
no_violations() {
    for socket in /run/h1.sock /run/h2.sock; do
        crosslane --socket $socket status --json | grep -q '"violations": *0' || { cat /run/*.log; return 1; }
    done
}

# Two daemons in network namespaces of their own, on a pair that is loaded.
hosts() {
    load crosslane_ntb
    unshare -n sleep 1000 &
    first=$!
    unshare -n sleep 1000 &
    second=$!
    sleep 1
    host 1 a $first
    host 2 b $second
}

streams() {
    mount -t tmpfs none /run
    load ntb
    load tun && load inet_diag && load tcp_diag
    load_pair window_len=0x1000000
    hosts
    test_that daemons_see_each_other_over_bridges daemons
    test_that unmodified_iperf3_goes_by_a_stream_over_bridges iperf
    test_that sleeping_programs_wake_each_other_by_bells bells
    test_that nobody_breaks_the_protocol_over_bridges no_violations
}

# On the smallest windows that a daemon takes: with short rings, and few of them.
streams_over_small_windows() {
    load_pair window_len=0x100000
    hosts
    test_that small_windows_join_daemons daemons
    test_that small_windows_carry_streams iperf
    test_that small_windows_see_no_violations no_violations
    kill $(pidof crosslaned)
    sleep 1
    rmmod crosslane_ntb && rmmod ntb_soft
}

case $(cat /proc/cmdline) in
*role=streams*) streams ;;
*role=hard*) hard ;;
*role=late*) late ;;
*role=shapes*) shapes ;;
*role=abuse*) abuse ;;
*role=first*) between first ;;
*role=second*) between second ;;
*) alone ;;
esac
echo "all tests have run"
poweroff -f
