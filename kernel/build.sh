# Functions that build the kernel modules, and the kernel's own NTB drivers beside them, for Debian's kernel; sourced by scripts that
# have set `target`, the folder of all that is built or downloaded, and are in the project's folder.

cannot() {
    echo "cannot run: $1"
    exit 77
}

# The version of the newest kernel whose headers are installed.
version() {
    local build
    for build in $(printf '%s\n' /lib/modules/*-amd64/build | sort -rV); do
        if [[ -e $build/Makefile ]]; then basename "$(dirname "$build")" && return; fi
    done
}

# Package $1, unpacked in $target/$2.
unpacked() {
    if [[ -e $target/$2/.done ]]; then return; fi
    rm -rf "${target:?}/$2"
    mkdir -p "$target/$2"
    (cd "$target/$2" && apt-get download "$1" >apt.log 2>&1) || cannot "package $1 cannot be downloaded"
    dpkg -x "$target/$2"/*.deb "$target/$2"
    rm "$target/$2"/*.deb
    touch "$target/$2/.done"
}

# The kernel's own NTB core, clients and network driver, unchanged, as modules: Debian builds none. From the archive $2, in the folder $3, for
# the headers $1, with the compiler's flags $4. Each step returns what failed: `set -e` does not hold in a function whose result is looked at.
build_stock() {
    local build=$1 archive=$2 folder=$3 flags=${4:-} source
    source=$(basename "$archive" .tar.xz)
    rm -rf "$folder"
    mkdir -p "$folder"
    tar xf "$archive" -C "$folder" --strip-components=2 "$source/drivers/ntb" "$source/drivers/net/ntb_netdev.c" || return
    make -C "$build" M="$folder/ntb" CONFIG_NTB=m CONFIG_NTB_MSI=y CONFIG_NTB_TRANSPORT=m CONFIG_NTB_PERF=m \
        CONFIG_NTB_TOOL=m CONFIG_NTB_PINGPONG=m KCFLAGS="-DCONFIG_NTB_MODULE=1 -DCONFIG_NTB_MSI=1 $flags" modules || return
    echo "obj-m := ntb_netdev.o" >"$folder/net/Kbuild"
    make -C "$build" M="$folder/net" KBUILD_EXTRA_SYMBOLS="$folder/ntb/Module.symvers" KCFLAGS="-DCONFIG_NTB_MODULE=1 $flags" modules
}

stock() {
    local series=${version%%.0-*}
    if [[ -e $target/stock/.done ]]; then return; fi
    unpacked "linux-source-$series" source
    build_stock "/lib/modules/$version/build" "$target/source/usr/src/linux-source-$series.tar.xz" "$target/stock" || return
    rm -rf "$target/source"
    touch "$target/stock/.done"
}

# Our modules, built from a copy, since kbuild writes beside its sources.
ours() {
    rm -rf "$target/ours"
    cp -r kernel "$target/ours"
    make -C "$target/ours" KDIR="/lib/modules/$version/build" STOCK="$target/stock/ntb" KCFLAGS=-Werror modules
}

# Downloads and builds all of it, for the newest kernel whose headers are installed; sets `version`.
build_modules() {
    version=$(version)
    [[ -n $version ]] || cannot "no kernel headers: apt-get install linux-headers-amd64"
    unpacked "linux-image-$version" image
    stock >"$target/build.log" 2>&1 || { tail -n 30 "$target/build.log"; exit 1; }
    ours >>"$target/build.log" 2>&1 || { tail -n 30 "$target/build.log"; exit 1; }
}
