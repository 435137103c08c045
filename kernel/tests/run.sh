#!/usr/bin/env bash
# Builds the kernel modules, and the kernel's own NTB drivers beside them, for Debian's kernel, and tests them in a virtual machine.
#
#   kernel/tests/run.sh [streams|alone|hard|late|shapes|abuse|two]..             the machines' consoles are left in target/kernel/*.log
#   ABUSE='fuzz_seconds=600 cycles=500' ABUSE_LIMIT=7200 kernel/tests/run.sh     random calls and cycles for longer; fuzz_seed=NUMBER
#
# Needs Debian 12 and its packages that scripts/install-packages.sh installs by the word vm; no root, no KVM. The kernel's image and its
# source (210 MB) are downloaded once, from where apt gets its packages, and unpacked in target/kernel, not installed. Ends with
# `test result: ..`; exit code 0 if nothing failed, 77 if this machine cannot run it, with the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}/kernel" && realpath "${CARGO_TARGET_DIR:-target}/kernel")
# TCG gives a machine that is slow, and the same everywhere; its processor and its clock are those of a lab's machines
# (crates/lab/src/machine/qemu.rs says why). One that is alone takes 30 to 130 s; they wait for timers most of that time.
LIMIT=400 AT_ONCE=2
# Seconds in which a machine's kernel has started its first program; it takes 5 to 20.
BOOTED_IN=120

# shellcheck source=kernel/build.sh
source kernel/build.sh

# The kernel port of the crate `port` and its conformance suite, with the libraries that it needs.
conformance() {
    local test library
    test=$(cargo test --locked -p crosslane-port --test kernel --no-run 2>&1 | tee -a "$target/build.log" |
        sed -n 's,.*Executable tests/kernel.rs (\(.*\)),\1,p')
    programs "$1" "$test"
    mv "$1/bin/${test##*/}" "$1/bin/kernel-port"
}

# Programs with the libraries that they need, in the folder $1.
programs() {
    local root=$1 program library
    shift
    for program in "$@"; do
        cp "$program" "$root/bin/"
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do install -D "$library" "$root$library"; done
    done
}

# Daemons, the socket library, an unmodified program, and what of Debian's modules they need.
crosslane() {
    local module
    programs "$1" "$bin/crosslane" "$bin/crosslaned" "$bin/libcrosslane_sockets.so" "$(command -v iperf3)"
    strip -g "$1"/bin/crosslane "$1"/bin/crosslaned "$1"/bin/libcrosslane_sockets.so
    for module in tun inet_diag tcp_diag; do find "$target/image" -name "$module.ko" -exec cp {} "$1/modules" \;; done
}

# A first file system: busybox, all modules, the tests.
machine() {
    local root=$target/root name
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,run,tmp,modules}
    cp /bin/busybox "$root/bin"
    for name in $(busybox --list | grep -vx busybox); do ln -s busybox "$root/bin/$name"; done
    find "$target/ours" "$target/stock" -name '*.ko' -exec cp {} "$root/modules" \;
    cc -O2 -Wall -Wextra -Werror -static -Ikernel/include kernel/tests/*.c -o "$root/bin/segments"
    conformance "$root"
    if [[ -n $bin ]]; then crosslane "$root"; fi
    cp kernel/tests/init.sh "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$target/initrd.gz"
}

# The machines that run: their names by process.
declare -A machines=()

# Ends the machines that still run, and removes their cable: also by Ctrl-C.
clean_up() {
    if [[ ${#machines[@]} -gt 0 ]]; then kill "${!machines[@]}" 2>/dev/null || true; fi
    wait
    rm -f "$target/cable.memory"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Boots a machine whose console is $target/$1.log; the rest are words for QEMU. Atomics between machines need -smp 2.
start() {
    local name=$1 console=$target/$1.log words=$2
    echo "booting machine $name, at most $LIMIT s; its console: $console"
    shift 2
    until_booted "$name" "$console" -M q35 -cpu max,erms=off,fsrm=off -accel tcg -smp 2 -m 512 -nographic -no-reboot -nic none \
        -kernel "$target"/image/boot/vmlinuz-* -initrd "$target/initrd.gz" \
        -append "console=ttyS0 panic=-1 panic_on_warn=1 oops=panic tsc=reliable $words" "$@" &
    machines[$!]=$name
}

# Runs QEMU with the words $3... and the console $2, in a process of its own. The kernel of an emulated machine stood still once, in the midst of its
# boot, before any program ran: machine $1 is then booted again, and that is said. Whatever comes later is the machine's result.
until_booted() {
    local name=$1 console=$2 machine='' try second
    shift 2
    trap 'kill "$machine" 2>/dev/null; wait; exit 143' TERM
    for try in 1 2 3; do
        timeout -k 5 "$LIMIT" qemu-system-x86_64 "$@" </dev/null >"$console" 2>&1 &
        machine=$!
        for ((second = 0; second < BOOTED_IN; second++)); do
            if grep -q 'Run /init as init process' "$console" || ! kill -0 "$machine" 2>/dev/null; then
                wait "$machine"
                return
            fi
            sleep 1
        done
        echo "booting machine $name: try $try stood still in the kernel's boot: $(tr -d '\r' <"$console" | tail -n 1)"
        kill "$machine" && wait "$machine" || true
    done
}

# Waits until fewer than $1 machines run. What each that ended said of its tests is added to the sums.
fewer_than() {
    local process
    while [[ ${#machines[@]} -ge $1 ]]; do
        wait -n -p process "${!machines[@]}" || true
        count "${machines[$process]}"
        unset "machines[$process]"
    done
}

# What the machine of console $1 said of its tests, added to the sums.
count() {
    local lines
    lines=$(tr -d '\r' <"$target/$1.log")
    echo "machine $1 has ended:"
    grep -E '^(ok|FAILED) ' <<<"$lines" || true
    passed=$((passed + $(grep -c '^ok ' <<<"$lines" || true)))
    failed=$((failed + $(grep -c '^FAILED ' <<<"$lines" || true)))
    if ! grep -q '^all tests have run' <<<"$lines"; then
        failed=$((failed + 1))
        echo "machine $1 did not get to the end; its console ends with:"
        tail -n 40 <<<"$lines"
    fi
}

# Boots machine $1 if it is wanted, when there is room for it. The windows of a pair are memory that the kernel leaves alone.
alone() {
    wanted "$1" || return 0
    fewer_than "$AT_ONCE"
    start "$1" "role=$1 memmap=64M\$0x10000000 ${2:-}"
}

# Two machines with a cable of shared memory, and none beside them.
two() {
    local memory=$target/cable.memory end
    wanted two || return 0
    fewer_than 1
    rm -f "$memory"
    truncate -s 16M "$memory"
    for end in first second; do
        start "$end" "role=$end" -object memory-backend-file,id=cable,mem-path="$memory",size=16M,share=on \
            -device ivshmem-plain,memdev=cable
    done
    fewer_than 1
    rm -f "$memory"
}

# Whether the machine (or the pair of machines, `two`) named $1 is wanted: all are, if none was named.
wanted() {
    [[ ${#roles[@]} -eq 0 || " ${roles[*]} " == *" $1 "* ]]
}

roles=("$@")
for role in "${roles[@]}"; do
    if [[ " streams alone hard late shapes abuse two " != *" $role "* ]]; then
        echo "no machine is called $role: streams, alone, hard, late, shapes, abuse, two" >&2
        exit 2
    fi
done
bin=$(realpath "${CROSSLANE_BIN:-${CARGO_TARGET_DIR:-target}/release}")
if [[ ! -x $bin/crosslaned || ! -e $bin/libcrosslane_sockets.so ]] || ! command -v iperf3 >/dev/null; then bin=; fi
for program in qemu-system-x86_64 busybox cpio; do
    command -v "$program" >/dev/null || cannot "no $program: scripts/install-packages.sh vm"
done
build_modules
machine
passed=0 failed=0
if [[ -n $bin ]]; then
    alone streams
elif wanted streams; then
    echo "no streams between daemons: that needs a release build (make build) and iperf3"
    if [[ -n ${CI:-} ]]; then
        failed=$((failed + 1))
        echo "FAILED streams: CI may not skip them"
    fi
fi
LIMIT=${ABUSE_LIMIT:-$LIMIT} alone abuse "${ABUSE:-}"
for name in late shapes hard alone; do alone "$name"; done
two
fewer_than 1
echo "test result: $([[ $failed -eq 0 ]] && echo ok || echo FAILED). $passed passed; $failed failed; 0 ignored"
[[ $failed -eq 0 ]]
