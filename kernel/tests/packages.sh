#!/usr/bin/env bash
# Builds the Debian packages and installs and removes them in a copy of this machine's file system, whose changes are in memory: programs run,
# the group is made, dkms builds the modules for Debian's kernel.
#
#   kernel/tests/packages.sh        CROSSLANE_BIN: the built programs, else target/release; the packages are left in target/deb
#
# Needs root (mounts, in a namespace of its own) and what scripts/install-packages.sh installs by the word vm. Ends with `test result: ..`;
# exit code 0 if nothing failed, 77 if this machine cannot run it, with the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
project=$PWD
export PATH="$PATH:/usr/sbin:/sbin"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}/kernel" && realpath "${CARGO_TARGET_DIR:-target}/kernel")
debs=$target/../deb
# shellcheck source=kernel/build.sh
source kernel/build.sh

passed=0 failed=0
# Whether the test named $1, the command behind it, succeeds.
test_that() {
    local name=$1 said code
    shift
    set +e
    said=$(set -e; "$@" 2>&1)
    code=$?
    set -e
    if [[ $code -eq 0 ]]; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAILED $name: $(tail -n 8 <<<"$said")"
    fi
}

# All files are root's, and writable by nobody else.
nobody_else_writes() {
    local package lines
    for package in "$debs"/*.deb; do
        lines=$(dpkg-deb -c "$package")
        [[ $(wc -l <<<"$lines") -gt 10 ]]
        if grep -vE '^[-d]rw[-x]r-[-x]r-[-x] root/root ' <<<"$lines"; then return 1; fi
    done
}

# They are not for upload to Debian, whose first upload of a package closes a bug.
lintian_finds_nothing() {
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$debs"/*.deb
}

# The rest runs in the copy, $copy.
inside() {
    chroot "$copy" "$@"
}

programs_run() {
    inside dpkg -i "/packages/$(basename "$debs"/crosslane_*.deb)"
    [[ $(inside crosslaned --version) == $("$bin/crosslaned" --version) ]]
    [[ $(inside crosslane --version) == $("$bin/crosslane" --version) ]]
    inside dpkg --verify crosslane
    inside systemd-analyze verify /lib/systemd/system/crosslaned.service 2>&1 | tee /dev/stderr | { ! grep -i 'crosslaned.service:.*\(unknown\|not exec\)'; }
    [[ -e $copy/usr/share/man/man8/crosslaned.8.gz && -e $copy/usr/include/crosslane.h ]]
}

modules_are_built() {
    local modules=$copy/lib/modules/$version/updates/dkms name
    inside dpkg -i "/packages/$(basename "$debs"/crosslane-dkms_*.deb)"
    # The postinst builds for the kernel that runs and for the newest one with an image; the tests' may be neither.
    if ! inside dkms status -m crosslane -k "$version" | grep ": installed"; then
        inside dkms install -m crosslane -v "$upstream" -k "$version"
    fi
    inside dkms status -m crosslane | grep "$version.*: installed"
    for name in crosslane_ntb ntb_soft ntb ntb_hw_intel ntb_hw_amd ntb_hw_idt ntb_hw_epf; do
        [[ $(modinfo -F vermagic "$modules/$name.ko") == "$version "* ]]
    done
    [[ $(inside modprobe -S "$version" --show-depends crosslane_ntb) == *"/ntb.ko"*"/crosslane_ntb.ko"* ]]
}

only_the_group_may_use_cables() {
    grep -q '^crosslane:' "$copy/etc/group"
    grep -qx 'SUBSYSTEM=="misc", KERNEL=="crosslane\[0-9\]\*", GROUP="crosslane", MODE="0660"' "$copy/lib/udev/rules.d/60-crosslane.rules"
}

# No alias of a device loads it; its name does.
only_its_name_loads_ntb_soft() {
    local alias=pci:v00001AF4d00001110sv0sd0bc05sc00i00
    # Without the package's configuration, then with it, as udev asks.
    inside modprobe -C /dev/null -S "$version" -n -v "$alias" | grep "/ntb_soft.ko"
    if inside modprobe -S "$version" -n -v -b "$alias" | grep "/ntb_soft.ko"; then return 1; fi
    inside modprobe -S "$version" -n -v ntb_soft | grep "/ntb_soft.ko"
}

removal_leaves_no_module() {
    inside dpkg -r crosslane-dkms crosslane
    [[ ! -e $copy/lib/modules/$version/updates/dkms/crosslane_ntb.ko && ! -e $copy/usr/src/crosslane-$upstream ]]
    [[ ! -e $copy/usr/bin/crosslaned && ! -e $copy/usr/lib/crosslane ]]
}

# In a mount namespace of its own: the copy ends with it.
in_copy() {
    copy=$(mktemp -d)
    trap 'umount -R "$copy" 2>/dev/null; rmdir "$copy"' EXIT
    mount -t tmpfs none "$copy"
    mkdir "$copy"/{written,work,root}
    mount -t overlay -o "lowerdir=/,upperdir=$copy/written,workdir=$copy/work" none "$copy/root" ||
        cannot "no overlay of / can be mounted"
    mount --rbind /proc "$copy/root/proc"
    mount --rbind /dev "$copy/root/dev"
    mount -t tmpfs none "$copy/root/tmp"
    umounted=$copy
    copy=$copy/root
    trap 'umount -R "$umounted" 2>/dev/null; rmdir "$umounted"' EXIT
    mkdir "$copy/packages"
    cp "$debs"/*.deb "$copy/packages"
    cp "$archive" "$copy/usr/src/"
    test_that programs_are_installed_and_run programs_run
    test_that dkms_builds_modules_and_an_ntb_core_for_debian modules_are_built
    test_that only_the_group_may_use_cables only_the_group_may_use_cables
    test_that only_its_name_loads_ntb_soft only_its_name_loads_ntb_soft
    test_that removal_leaves_no_module removal_leaves_no_module
}

[[ $(id -u) -eq 0 ]] || cannot "installing packages in a copy of the file system needs root"
bin=$(realpath "${CROSSLANE_BIN:-${CARGO_TARGET_DIR:-target}/release}")
[[ -x $bin/crosslaned ]] || cannot "no programs in $bin: make build"
version=$(version)
[[ -n $version ]] || cannot "no kernel headers: apt-get install linux-headers-amd64"
for program in dkms lintian dpkg-shlibdeps; do
    command -v "$program" >/dev/null || cannot "no $program: scripts/install-packages.sh vm"
done
if [[ ${1:-} != inside ]]; then exec unshare -m --propagation private "$project/kernel/tests/packages.sh" inside; fi
kernel_parts >"$target/packages.log" 2>&1
upstream=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
rm -rf "$debs"
echo "building packages of $bin"
scripts/deb.sh "$bin" "$debs"
debs=$(realpath "$debs")
test_that nobody_else_writes_to_files_of_packages nobody_else_writes
test_that lintian_finds_nothing lintian_finds_nothing
in_copy
echo "test result: $([[ $failed -eq 0 ]] && echo ok || echo FAILED). $passed passed; $failed failed; 0 ignored"
[[ $failed -eq 0 ]]
