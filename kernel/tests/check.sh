#!/usr/bin/env bash
# Static checks of the kernel modules: builds with warnings as errors for Debian's kernel and for the newest one of its backports, with
# sparse; checkpatch --strict.
#
#   kernel/tests/check.sh           what was built is left in target/kernel/checked and target/kernel/newest
#
# Needs Debian 12 and the packages linux-headers-amd64 and sparse; no root. What it downloads (the kernel's source, 140 MB; newer headers
# with theirs, 170 MB) comes from where apt gets its packages, and is unpacked in target/kernel, not installed. Ends with
# `test result: ..`; exit code 0 if nothing failed, 77 if this machine cannot run it, with the reason. A part that cannot be run prints
# `SKIPPED: why`.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}/kernel" && realpath "${CARGO_TARGET_DIR:-target}/kernel")
# shellcheck source=kernel/build.sh
source kernel/build.sh
# shellcheck source=kernel/tests/newest.sh
source kernel/tests/newest.sh

# Types of checkpatch's findings that are allowed, and where: a pattern of files, `|` and the type.
ALLOWED=(
    # Modules outside the kernel's tree are built for several kernels; this file alone says what differs.
    'include/compat.h|LINUX_VERSION_CODE'
    # The same lines: checkpatch takes KERNEL_VERSION(..) for a constant on the wrong side of LINUX_VERSION_CODE.
    'include/compat.h|CONSTANT_COMPARISON'
)
# This project's lines are as long in C as in Rust.
COLUMNS_MOST=140

passed=0 failed=0
# Runs check $1, the command behind it; what it said is in target/kernel/check-$1.log.
check() {
    local name=$1
    shift
    echo "$name: ..."
    # Not in a condition, where `set -e` would not hold inside.
    set +e
    (set -eo pipefail; "$@") >"$target/check-$name.log" 2>&1
    local code=$?
    set -e
    grep '^SKIPPED:' "$target/check-$name.log" || true
    if [[ $code -eq 0 ]]; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAILED $name: the end of $target/check-$name.log:"
        tail -n 30 "$target/check-$name.log"
    fi
}

# Builds our modules against the headers $1 with the built NTB core $2, in the folder $3, with every warning of the compiler and of sparse an
# error. What sparse says does not fail make, so it is looked for.
build_strictly() {
    local headers=$1 core=$2 folder=$3
    rm -rf "$folder"
    cp -r kernel "$folder"
    make -j "$(nproc)" -C "$folder" KDIR="$headers" STOCK="$core" W=1 C=2 KCFLAGS=-Werror modules 2>&1 | tee "$folder/said"
    if ! grep -q '^ *CHECK ' "$folder/said"; then
        echo "sparse did not run"
        return 1
    fi
    if grep -E '(warning|error):' "$folder/said"; then return 1; fi
}

for_debian() {
    stock
    build_strictly "/lib/modules/$version/build" "$target/stock/ntb" "$target/checked"
}

for_newest() {
    newest_headers
    newest_stock
    build_strictly "$newest_build" "$newest_root/stock/ntb" "$newest_root/checked"
}

# checkpatch of the kernel that we build for.
checkpatch() {
    local scripts=$target/checkpatch file
    rm -rf "$scripts"
    mkdir -p "$scripts"
    tar xf "$archive" -C "$scripts" --strip-components=2 --wildcards '*/scripts/*'
    for file in kernel/include/*.h kernel/ntb_soft/*.[ch] kernel/crosslane_ntb/*.[ch] kernel/tests/*/*.c; do
        # 1: it found something, which may be allowed.
        perl "$scripts/checkpatch.pl" --no-tree --strict --terse --show-types --max-line-length="$COLUMNS_MOST" --file "$file" ||
            [[ $? -eq 1 ]]
    done >"$target/checkpatch.found"
    if not_allowed <"$target/checkpatch.found"; then return 1; fi
}

# Those of checkpatch's lines that ALLOWED does not name; fails if there are none.
not_allowed() {
    local allowed patterns=(-e '^total: ')
    for allowed in "${ALLOWED[@]}"; do patterns+=(-e "^kernel/${allowed%|*}:[0-9]*: [A-Z]*:${allowed#*|}: "); done
    grep -v "${patterns[@]}"
}

version=$(version)
[[ -n $version ]] || cannot "no kernel headers: apt-get install linux-headers-amd64"
for program in sparse perl; do
    command -v "$program" >/dev/null || cannot "no $program: scripts/install-packages.sh vm"
done
kernel_parts
check builds_for_debian_without_warnings for_debian
check passes_checkpatch checkpatch
if newest_known; then
    check builds_for_backports_without_warnings for_newest
else
    # scripts/test.sh takes a skipped test for one that said that it passed, as cargo counts it.
    passed=$((passed + 1))
fi
echo "test result: $([[ $failed -eq 0 ]] && echo ok || echo FAILED). $passed passed; $failed failed; 0 ignored"
[[ $failed -eq 0 ]]
