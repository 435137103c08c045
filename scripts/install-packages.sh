#!/usr/bin/env bash
# Installs the Debian packages that Crosslane's demo, tests and tests in virtual machines need, if they are missing.
#
#   scripts/install-packages.sh demo|test|vm [--check]
#
# Fast when all is there. Asks for sudo only if something is missing. No service is started by what it installs.
# A package that cannot be had is named in one line and is no error: what needs it says so and is left out.
# --check only prints what is missing; exit code 1 if something is.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

# PROGRAM (or path, or @PACKAGE in the newest version that apt knows) that must be there, then the packages that bring it, best first.
demo=(
    "ip iproute2"
    "iperf3 iperf3"
    "sockperf sockperf"
    "redis-server redis-server"
    "redis-benchmark redis-tools"
    "nginx nginx-light nginx"
    "curl curl"
    "wrk wrk"
    "ab apache2-utils"
    "qperf qperf"
    "netperf netperf"
    "perf linux-perf"
)
test=(
    "${demo[@]}"
    "memcached memcached"
    "fio fio"
    "nbdkit nbdkit"
    "apache2 apache2-bin"
    "haproxy haproxy"
    "vsftpd vsftpd"
    "c++ g++"
    "nc netcat-openbsd"
    "sshd openssh-server"
    "ssh openssh-client"
    "openssl openssl"
    "/usr/lib/postgresql/*/bin/pgbench postgresql"
    "node nodejs"
    "go golang-go"
    "python3 python3"
    "/usr/lib/python3*/test/test_socket.py libpython3.11-testsuite"
    "socat socat"
    "stress-ng stress-ng"
    "ss iproute2"
    "ping iputils-ping"
    "ganesha.nfsd nfs-ganesha"
    "/usr/lib/*/ganesha/libfsalvfs.so nfs-ganesha-vfs"
    "nfs-cp libnfs-utils"
    "nbdcopy libnbd-bin"
    "/usr/lib/python3/dist-packages/grpc/__init__.py python3-grpcio"
    "/usr/lib/python3/dist-packages/zmq/__init__.py python3-zmq"
    "/usr/lib/python3/dist-packages/kazoo/__init__.py python3-kazoo"
    "/usr/lib/python3/dist-packages/pika/__init__.py python3-pika"
    "/usr/lib/python3/dist-packages/uvloop/__init__.py python3-uvloop"
    "/usr/lib/python3/dist-packages/pip/__init__.py python3-pip"
    "/usr/lib/jvm/default-java/bin/java default-jre-headless"
    "/usr/share/java/zookeeper.jar libzookeeper-java"
    "rabbitmq-server rabbitmq-server"
    "mpicc.openmpi libopenmpi-dev"
    "mpirun.openmpi openmpi-bin"
    "mpicc.mpich libmpich-dev"
    "mpirun.mpich mpich"
    "/usr/include/liburing.h liburing-dev"
    "musl-gcc musl-tools"
    "podman podman"
    "runc runc"
    "chromium chromium"
)
vm=(
    # An image of the headers' version is downloaded, so that it must be one that the archive still has.
    "@linux-headers-amd64 linux-headers-amd64"
    "qemu-system-x86_64 qemu-system-x86"
    "@busybox-static busybox-static"
    "cpio cpio"
    "iperf3 iperf3"
    "sockperf sockperf"
    "ping iputils-ping"
    "cc gcc"
    "/usr/include/*-linux-gnu/sys/types.h libc6-dev"
    "make make"
    "xz xz-utils"
    "perl perl"
    "sparse sparse"
    "depmod kmod"
    "dpkg-shlibdeps dpkg-dev"
    "strip binutils"
    "dkms dkms"
    "lintian lintian"
)
# Worth having, but not in every Debian: why it may be missing.
declare -A optional=([netperf]="it is in Debian's non-free section, which this machine does not use")

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
}

have() {
    case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    @*) is_newest "${1#@}" ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# Whether package $1 is installed, and apt knows no newer version.
is_newest() {
    local state
    state=$(apt-cache policy "$1" 2>/dev/null | sed -nE 's/^  (Installed|Candidate): //p')
    [[ -n $state && $state != "(none)"* && $(head -n 1 <<<"$state") == $(tail -n 1 <<<"$state") ]]
}

# Prints the packages (alternatives joined by |) of programs that are missing.
missing() {
    local entry program packages
    for entry in "$@"; do
        read -r program packages <<<"$entry"
        have "$program" || echo "${packages// /|}"
    done | sort -u
}

can_have() {
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p')
    [[ -n $candidate && $candidate != "(none)" ]]
}

# Sets `choice` to the first alternative that can be had.
choose() {
    local one
    for one in ${1//|/ }; do
        if can_have "$one"; then
            choice=$one
            return 0
        fi
    done
    return 1
}

policy=/usr/sbin/policy-rc.d
kept=
enabled=
# Debian's maintainer scripts ask policy-rc.d before they start a service: 101 means no.
hold_services() {
    enabled=$(wanted_units)
    trap release_services EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [[ -e $policy || -L $policy ]]; then
        kept=$policy.kept-by-crosslane.$$
        mv "$policy" "$kept"
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

# Units that the next boot would start.
wanted_units() {
    find /etc/systemd/system -path '*.wants/*' -type l -printf '%f\n' 2>/dev/null | sort -u
}

release_services() {
    local unit
    if command -v systemctl >/dev/null; then
        while read -r unit; do
            systemctl --quiet disable "$unit" 2>/dev/null || true
        done < <(comm -13 <(echo "$enabled") <(wanted_units))
    fi
    rm -f "$policy"
    if [[ -n $kept ]]; then mv "$kept" "$policy"; fi
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

say_unavailable() {
    local why=${optional[$1]:-"no repository of this machine has it"}
    echo "packages: $1 is left out: $why"
}

# As root: installs the packages given, as far as they can be had.
install() {
    local group choice wanted=() updated=
    for group in "$@"; do
        if ! choose "$group" && [[ -z $updated ]]; then
            echo "packages: apt-get update"
            apt update >/dev/null || echo "packages: apt-get update failed; going on with what is known"
            updated=1
        fi
        if choose "$group"; then wanted+=("$choice"); else say_unavailable "$group"; fi
    done
    if [[ ${#wanted[@]} -eq 0 ]]; then return 0; fi
    echo "packages: installing ${wanted[*]}"
    hold_services
    if apt install -y --no-install-recommends "${wanted[@]}"; then return 0; fi
    # The lists may be old, or one package broken: fresh lists, then one after the other.
    if [[ -z $updated ]]; then apt update >/dev/null || true; fi
    for choice in "${wanted[@]}"; do
        apt install -y --no-install-recommends "$choice" || echo "packages: $choice is left out: apt-get failed, see above"
    done
}

main() {
    local set=${1:-} entries lost
    case $set in
    demo) entries=("${demo[@]}") ;;
    test) entries=("${test[@]}") ;;
    vm) entries=("${vm[@]}") ;;
    --install)
        shift
        install "$@"
        return
        ;;
    *) usage ;;
    esac
    mapfile -t lost < <(missing "${entries[@]}")
    if [[ ${2:-} == --check ]]; then
        if [[ ${#lost[@]} -eq 0 ]]; then return 0; fi
        echo "packages: missing: ${lost[*]}"
        return 1
    fi
    # A missing optional package alone is no reason to ask for a password: say so and go on.
    if [[ ${#lost[@]} -eq 1 && -n ${optional[${lost[0]}]:-} ]] && ! can_have "${lost[0]}"; then
        say_unavailable "${lost[0]}"
        return 0
    fi
    if [[ ${#lost[@]} -eq 0 ]]; then return 0; fi
    if ! command -v apt-get >/dev/null; then
        echo "packages: this is no Debian; install by hand what you can of: ${lost[*]}"
    elif [[ $(id -u) -eq 0 ]]; then
        install "${lost[@]}"
    elif command -v sudo >/dev/null; then
        echo "packages: missing: ${lost[*]}; asking sudo to install them"
        sudo -- bash "$0" --install "${lost[@]}" || echo "packages: not installed; what needs them is left out"
    else
        echo "packages: missing: ${lost[*]}; there is no sudo: as root, run scripts/install-packages.sh $set"
    fi
}

main "$@"
