# Functions that get the newest kernel headers that Debian's backports have, and that kernel's own NTB drivers; sourced by scripts that have
# set `target` and sourced kernel/build.sh. The machine's apt is asked where its packages come from, and is not changed: lists, cache and
# packages are in $target/newest, nothing is installed.

newest=$target/newest

# apt with the backports as its only source, and nothing installed.
newest_apt() {
    local program=$1
    shift
    "$program" -q -o Dir::Etc::sourcelist="$newest/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::status=/dev/null \
        -o Dir::State::lists="$newest/lists" -o Dir::Cache="$newest/cache" "$@"
}

# Asks the backports for their newest kernel, and sets newest_version to it. Otherwise prints `SKIPPED: why` and fails: a registry that
# cannot be reached or has no backports says nothing about the modules, in CI as anywhere else. Where it has them, all that goes wrong
# behind this is a failure.
newest_known() {
    local codename site
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    site=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(CODENAME)|$(COMPONENT)|$(REPO_URI)' 'Identifier: Packages' |
        sed -n "s/^Debian|Debian|$codename|main|//p" | head -n 1)
    if [[ -z $codename || -z $site ]]; then
        echo "SKIPPED: builds_for_backports_without_warnings: apt knows no Debian archive here, or has no lists yet (apt-get update)"
        return 1
    fi
    echo "asking Debian's archive for its newest kernel headers"
    mkdir -p "$newest/lists/partial" "$newest/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $codename-backports main" >"$newest/sources.list"
    if ! newest_apt apt-get -o APT::Update::Error-Mode=any update >"$newest/update.log" 2>&1; then
        echo "SKIPPED: builds_for_backports_without_warnings: no $codename-backports can be had: $(grep '^[EW]:' "$newest/update.log" | tail -n 1)"
        return 1
    fi
    newest_version=$(newest_apt apt-cache pkgnames linux-headers- | sed -nE 's/^linux-headers-([0-9].*-amd64)$/\1/p' |
        grep -vE -- '-(rt|cloud)-' | sort -V | tail -n 1 || true)
    if [[ -z $newest_version ]]; then
        echo "SKIPPED: builds_for_backports_without_warnings: $codename-backports has no kernel headers"
        return 1
    fi
    newest_root=$newest/$newest_version
    newest_build=$newest_root/usr/src/linux-headers-$newest_version
}

# Packages $2.. unpacked in the folder $1.
newest_unpacked() {
    local folder=$1 package
    shift
    mkdir -p "$folder"
    echo "downloading $*"
    (cd "$folder" && newest_apt apt-get download "$@")
    for package in "$folder"/*.deb; do
        dpkg -x "$package" "$folder"
        rm "$package"
    done
}

# The headers, in a folder where they are not installed.
newest_headers() {
    local packages
    if [[ -e $newest_root/.headers ]]; then return; fi
    # Older kernels, and what was left half done.
    find "$newest" -maxdepth 1 -name '*-amd64' -exec rm -rf {} +
    mapfile -t packages < <(newest_apt apt-cache depends "linux-headers-$newest_version" |
        sed -nE 's/^ *\|?Depends: (linux-(headers|kbuild)-.*)/\1/p')
    newest_unpacked "$newest_root" "linux-headers-$newest_version" "${packages[@]}"
    # Their only absolute path; the others are relative.
    sed -i "s,/usr/src/,$newest_root/usr/src/," "$newest_build/Makefile"
    # With it modules get type information, which needs pahole, and of which nothing depends whether they build.
    rm -f "$newest_build/vmlinux"
    touch "$newest_root/.headers"
}

# Its NTB drivers, built with warnings as errors.
newest_stock() {
    local series
    series=$(cut -d. -f1,2 <<<"$newest_version")
    if [[ -e $newest_root/.stock ]]; then return; fi
    newest_unpacked "$newest_root/source" "linux-source-$series"
    build_stock "$newest_build" "$newest_root/source/usr/src/linux-source-$series.tar.xz" "$newest_root/stock" -Werror
    rm -rf "$newest_root/source"
    touch "$newest_root/.stock"
}
