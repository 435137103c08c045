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

# Downloads package $1 into this folder; root asks for fresh lists where that fails: a new machine may have none, or old ones.
download() {
    apt-get download "$1" || { [[ $(id -u) -eq 0 ]] && apt-get update && apt-get download "$1"; }
}

# Package $1, unpacked in $target/$2.
unpacked() {
    if [[ -e $target/$2/.done ]]; then return; fi
    rm -rf "${target:?}/$2"
    mkdir -p "$target/$2"
    (cd "$target/$2" && download "$1" >apt.log 2>&1) ||
        cannot "package $1 cannot be downloaded: apt-get update, and apt-get install linux-headers-amd64 if there is a newer kernel"
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
    make -j "$(nproc)" -C "$build" M="$folder/ntb" CONFIG_NTB=m CONFIG_NTB_MSI=y CONFIG_NTB_TRANSPORT=m CONFIG_NTB_PERF=m \
        CONFIG_NTB_TOOL=m CONFIG_NTB_PINGPONG=m KCFLAGS="-DCONFIG_NTB_MODULE=1 -DCONFIG_NTB_MSI=1 $flags" modules || return
    echo "obj-m := ntb_netdev.o" >"$folder/net/Kbuild"
    make -j "$(nproc)" -C "$build" M="$folder/net" KBUILD_EXTRA_SYMBOLS="$folder/ntb/Module.symvers" KCFLAGS="-DCONFIG_NTB_MODULE=1 $flags" modules
}

# Of the kernel's source what is used here, in an archive as Debian's, whose path `archive` is set to: the whole of it is 140 MB.
kernel_parts() {
    local series=${version%%.0-*}
    archive=$target/parts/linux-source-$series.tar.xz
    if [[ -e $archive ]]; then return; fi
    unpacked "linux-source-$series" source
    mkdir -p "$target/parts"
    tar xf "$target/source/usr/src/linux-source-$series.tar.xz" -C "$target/source" "linux-source-$series"/drivers/{ntb,net/ntb_netdev.c} \
        "linux-source-$series"/scripts/{checkpatch.pl,spelling.txt,const_structs.checkpatch} || return
    tar cJf "$archive.new" -C "$target/source" "linux-source-$series" || return
    mv "$archive.new" "$archive"
    rm -rf "$target/source"
}

stock() {
    if [[ -e $target/stock/.done ]]; then return; fi
    build_stock "/lib/modules/$version/build" "$archive" "$target/stock" || return
    touch "$target/stock/.done"
}

# Our modules, built from a copy, since kbuild writes beside its sources.
ours() {
    rm -rf "$target/ours"
    cp -r kernel "$target/ours"
    make -j "$(nproc)" -C "$target/ours" KDIR="/lib/modules/$version/build" STOCK="$target/stock/ntb" KCFLAGS=-Werror modules
}

# Downloads and builds all of it, for the newest kernel whose headers are installed; sets `version`.
build_modules() {
    version=$(version)
    [[ -n $version ]] || cannot "no kernel headers: apt-get install linux-headers-amd64"
    if [[ ! -e $target/image/.done ]]; then echo "downloading the kernel's image, 70 MB"; fi
    unpacked "linux-image-$version" image
    if [[ ! -e $target/stock/.done ]]; then echo "downloading the kernel's source, 140 MB, and building its NTB drivers"; fi
    kernel_parts
    stock >"$target/build.log" 2>&1 || { tail -n 30 "$target/build.log"; exit 1; }
    echo "building the modules for $version"
    ours >>"$target/build.log" 2>&1 || { tail -n 30 "$target/build.log"; exit 1; }
}
