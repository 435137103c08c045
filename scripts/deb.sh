#!/usr/bin/env bash
# Builds Debian packages: `crosslane` (programs, libraries, man pages, service) and `crosslane-dkms` (the kernel modules' source, udev rule).
#
#   scripts/deb.sh BIN OUT          BIN: folder of the built programs and libraries; OUT: where the packages go
#
# Needs cargo, dpkg-dev and binutils; no root. Why so, and not by debhelper: docs/decisions/0044-packages.md
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -ne 2 || ! -x $1/crosslaned ]]; then
    echo "usage: scripts/deb.sh BIN OUT, where BIN has the built programs (make build)" >&2
    exit 2
fi
bin=$(realpath "$1")
out=$(mkdir -p "$2" && realpath "$2")
for program in dpkg-shlibdeps dpkg-deb strip; do
    command -v "$program" >/dev/null || { echo "no $program: apt-get install dpkg-dev binutils" >&2; exit 1; }
done
upstream=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
version=$upstream-1
architecture=$(dpkg --print-architecture)
# All files of a package have one time, that of the last commit, or building twice would give two packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
umask 022
maintainer="Crosslane developers <crosslane@example.invalid>"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# The fields of package $1 of architecture $2; the rest are fields, a line each.
control() {
    local package=$1 architecture=$2
    shift 2
    mkdir -p "$stage/$package/DEBIAN"
    {
        printf '%s\n' "Package: $package" "Version: $version" "Architecture: $architecture" \
            "Maintainer: $maintainer" "Priority: optional" "$@"
    } >"$stage/$package/DEBIAN/control"
}

# A maintainer script $2 of package $1, from the standard input.
script() {
    cat >"$stage/$1/DEBIAN/$2"
    chmod 755 "$stage/$1/DEBIAN/$2"
}

# What every Debian package has in its doc folder; $2: the file with its copyright.
documents() {
    local folder=$stage/$1/usr/share/doc/$1
    install -d "$folder"
    install -m 644 "$2" "$folder/copyright"
    gzip -9n <CHANGELOG.md >"$folder/changelog.gz"
    printf 'crosslane (%s) unstable; urgency=medium\n\n  * As changelog.gz says.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$folder/changelog.Debian.gz"
}

# Sums of all files, as dpkg --verify checks them; then the package.
build() {
    local folder=$stage/$1
    (cd "$folder" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$folder/DEBIAN/md5sums"
    chmod 644 "$folder/DEBIAN/md5sums"
    echo "Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$folder" | cut -f1)" >"$stage/size"
    sed -i "/^Version: /r $stage/size" "$folder/DEBIAN/control"
    dpkg-deb --root-owner-group -Zxz --build "$folder" "$out"
}

# The libraries that programs and libraries of the package need, by their packages.
libraries() {
    mkdir -p "$stage/debian"
    printf 'Source: crosslane\n\nPackage: crosslane\nArchitecture: any\n' >"$stage/debian/control"
    (cd "$stage" && dpkg-shlibdeps -O crosslane/usr/bin/* crosslane/usr/lib/crosslane/*.so 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

programs() {
    local root=$stage/crosslane
    make -s install-files RELEASE="$bin" DESTDIR="$root" PREFIX=/usr
    # Debian's own places for them.
    mkdir -p "$root/lib/systemd"
    mv "$root/usr/lib/systemd/system" "$root/lib/systemd/system"
    rmdir "$root/usr/lib/systemd"
    gzip -9n "$root"/usr/share/man/man*/*
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root"/usr/bin/* "$root"/usr/lib/crosslane/*.so
    documents crosslane dist/copyright
    # What it is made of, and the licences of that.
    cargo xtask sbom "$stage/sbom" >/dev/null
    install -m 644 "$stage/sbom/sbom.cdx.json" "$root/usr/share/doc/crosslane/sbom.cdx.json"
    gzip -9n <"$stage/sbom/licences.txt" >"$root/usr/share/doc/crosslane/licences.txt.gz"
    # It is run by `crosslane lab`, not by people.
    mkdir -p "$root/usr/share/lintian/overrides"
    echo "crosslane: no-manual-page [usr/bin/crosslane-keeper]" >"$root/usr/share/lintian/overrides/crosslane"
    control crosslane "$architecture" "Section: net" "Depends: $(libraries)" "Recommends: crosslane-dkms" \
        "Description: sockets between hosts over PCIe non-transparent bridges" \
        " A daemon joins hosts by NTB cables, or by software cables on one host; a" \
        " library preloaded into unmodified programs carries their TCP connections in" \
        " shared memory, and IP packets have a network interface." \
        " ." \
        " The service crosslaned wants /etc/crosslane/crosslaned.toml, and is neither" \
        " enabled nor started by this package."
    # systemd reads new units when it is told to.
    for name in postinst postrm; do
        printf '#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi\n' |
            script crosslane "$name"
    done
    build crosslane
}

modules() {
    local root=$stage/crosslane-dkms source=$stage/crosslane-dkms/usr/src/crosslane-$upstream folder
    for folder in include ntb_soft crosslane_ntb; do
        install -d "$source/$folder"
        install -m 644 kernel/"$folder"/*.h "$source/$folder"
    done
    for folder in ntb_soft crosslane_ntb; do install -m 644 kernel/"$folder"/*.c kernel/"$folder"/Kbuild "$source/$folder"; done
    install -m 644 kernel/Makefile "$source/Makefile"
    sed "s/@VERSION@/$upstream/g" kernel/dkms.conf >"$source/dkms.conf"
    install -D -m 644 dist/60-crosslane.rules "$root/lib/udev/rules.d/60-crosslane.rules"
    install -D -m 644 dist/modules-load.conf "$root/usr/lib/modules-load.d/crosslane.conf"
    install -D -m 644 dist/modprobe.conf "$root/lib/modprobe.d/crosslane.conf"
    documents crosslane-dkms dist/copyright
    control crosslane-dkms all "Section: kernel" "Depends: dkms (>= 3), adduser, make, xz-utils" \
        "Recommends: linux-headers-generic | linux-headers-amd64, linux-source" \
        "Description: kernel modules of Crosslane for PCIe non-transparent bridges" \
        " crosslane_ntb gives ends of NTB cables to the daemon as /dev/crosslane0, ..;" \
        " ntb_soft makes bridges of software, to try NTB programs on." \
        " ." \
        " Where a kernel has no NTB core, as Debian's, it and the drivers of bridges are" \
        " built from the kernel's source, which linux-source brings."
    sed "s/@VERSION@/$upstream/g" dist/dkms.postinst | script crosslane-dkms postinst
    sed "s/@VERSION@/$upstream/g" dist/dkms.prerm | script crosslane-dkms prerm
    build crosslane-dkms
}

programs
modules
