#!/usr/bin/env bash
# Builds what the virtual machines of `crosslane lab up --vms` boot: target/kernel/machine/vmlinuz and initrd.gz, of Debian's kernel with
# the modules of this project and the kernel's own NTB drivers.
#
# Needs what kernel/tests/run.sh needs. Exit code 77 if this machine cannot build it, with the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}/kernel" && realpath "${CARGO_TARGET_DIR:-target}/kernel")
# shellcheck source=kernel/build.sh
source kernel/build.sh

# Debian's modules that a machine needs, in the order in which they can be loaded, as paths.
debian_modules() {
    local name
    depmod -b "$target/image" "$version"
    for name in virtio_pci virtio_console 9pnet_virtio 9p overlay tun tcp_diag; do
        modprobe -d "$target/image" -S "$version" --show-depends "$name"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}

# The first file system: busybox, the modules, and the order in which they are loaded.
machine() {
    local root=$target/machine/root module name
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,modules}
    cp /bin/busybox "$root/bin"
    for name in sh mount mkdir cat cp insmod switch_root poweroff; do ln -s busybox "$root/bin/$name"; done
    for module in $(debian_modules); do
        name=$(basename "$module" .ko)
        cp "$module" "$root/modules/"
        echo "$name" >>"$root/modules/order"
    done
    find "$target/ours" "$target/stock" -name '*.ko' -exec cp {} "$root/modules" \;
    printf '%s\n' ntb "ntb_soft windows=1 window_len=0x1000000 alive_ms=5000 poll_us=1000" crosslane_ntb >>"$root/modules/order"
    cp kernel/machine/init.sh "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$target/machine/initrd.gz"
    cp "$target"/image/boot/vmlinuz-* "$target/machine/vmlinuz"
    rm -rf "$root"
}

for program in busybox cpio depmod; do
    command -v "$program" >/dev/null || cannot "no $program: scripts/install-packages.sh vm"
done
build_modules
machine
echo "built $target/machine"
