#!/usr/bin/env bash
# All checks and tests, one stage after the other; every stage runs, also after one that failed.
#
#   scripts/test.sh [STAGE..]    stages: packages format lints docs structure advisories unit posted differ fuzz memory release vm
#                                        e2e posted_e2e soak suites
#
# Ends with what was skipped and why, the time of each stage, what each failed test said, and
# `N passed, N failed, N skipped` over all tests. Where a few tests failed, each is run once more, alone: one that passes then
# is named as unsteady, with what it said at first, and is a fault to look for, but does not fail the run.
# Exit code 0 only if nothing failed. Logs of the stages are left in target/test.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin" CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
# A failed test's own words are what one wants to read: stacks bury them.
unset RUST_BACKTRACE RUST_LIB_BACKTRACE
# Nobody reads lines of code from these builds, and without them they are done sooner.
export CARGO_PROFILE_DEV_DEBUG=none CARGO_PROFILE_FUZZ_DEBUG=none
target=${CARGO_TARGET_DIR:-target}
logs=$target/test
mkdir -p "$logs"

all=(packages format lints docs structure advisories unit posted differ fuzz memory release vm e2e posted_e2e soak suites)
failed=()
skipped=()
times=()
running=

# A stage that cannot run on this machine says so here, and its reason is repeated at the end.
skip() {
    skipped+=("$1: $2")
    echo "    SKIPPED: $2"
}

# Runs a command with a time limit of $1 seconds; Ctrl-C ends it and all that it started.
limited() {
    local limit=$1
    shift
    timeout -k 10 "$limit" "$@" &
    running=$!
    local code=0
    wait "$running" || code=$?
    running=
    if [[ $code -eq 124 ]]; then echo "not done after $limit s"; fi
    return "$code"
}

# The tests that failed in the log of a cargo test, as `-p PACKAGE --test TARGET :: NAME`.
failed_tests() {
    awk '/^test .* \.\.\. FAILED$/ { name[++count] = $2 }
         /to rerun pass `/ { split($0, part, "`"); for (i = 1; i <= count; i++) print part[2] " :: " name[i]; count = 0 }' "$1"
}

# Each test that failed in stage $1 once more, alone, and if it fails then a last time; of a build with the options $2...: for a stage that
# failed. Fails unless they were few, all known, and pass now.
again() {
    local log=$logs/$1.log tests=() test most=3
    shift
    # What the stage said last may still be on its way into the log.
    sleep 1
    mapfile -t tests < <(failed_tests "$log")
    if [[ ${#tests[@]} -eq 0 || ${#tests[@]} -gt $most || ${#tests[@]} -ne $(sum_up "$log" | cut -d' ' -f2) ]]; then
        return 1
    fi
    for test in "${tests[@]}"; do
        if passes_now "$test" "$@"; then
            echo "UNSTEADY: ${test##* :: } failed, and passed when it was run once more, alone"
        elif echo "failed once more, alone: ${test##* :: }" && said_again && passes_now "$test" "$@"; then
            echo "UNSTEADY: ${test##* :: } failed twice, and passed when it was run a third time"
        else
            return 1
        fi
    done
}

# What the test that ran alone said; moved to the right, so that nothing of it counts as a result of the stage.
said_again() {
    complaints "$logs/again.log" | sed 's/^/  | /'
}

# Whether the test $1, as `failed_tests` names it, passes alone.
passes_now() {
    local test=$1
    shift
    # shellcheck disable=SC2086 # several words: -p PACKAGE --test TARGET
    limited 300 cargo test --locked "$@" ${test% :: *} -- --exact "${test##* :: }" >"$logs/again.log" 2>&1 &&
        grep -q '^test result: ok. 1 passed' "$logs/again.log"
}

interrupted() {
    if [[ -n $running ]]; then kill "$running" 2>/dev/null && wait "$running" || true; fi
    echo "interrupted"
    exit 130
}
trap interrupted INT TERM

has_component() {
    cargo "$1" --version >/dev/null 2>&1
}

stage_packages() {
    limited 900 scripts/install-packages.sh test
}

stage_format() {
    if ! has_component fmt; then
        skip format "this toolchain has no rustfmt: rustup component add rustfmt"
        return 0
    fi
    limited 60 cargo fmt --all --check
}

stage_lints() {
    if ! has_component clippy; then
        skip lints "this toolchain has no clippy: rustup component add clippy"
        return 0
    fi
    limited 900 cargo clippy --locked --workspace --all-targets --features crosslane-e2e/machines -- -D warnings
}

stage_docs() {
    # Private items too: they are what a reader of the programs looks up, and their links are checked.
    RUSTDOCFLAGS="-D warnings" limited 600 cargo doc --locked --workspace --no-deps --document-private-items
}

stage_structure() {
    local script
    limited 300 cargo xtask all
    for script in scripts/*.sh kernel/*.sh kernel/*/*.sh .ci/run; do bash -n "$script"; done
}

stage_advisories() {
    local ran=
    if [[ -f deny.toml ]] && cargo deny --version >/dev/null 2>&1; then
        limited 300 cargo deny check
        ran=1
    fi
    if cargo audit --version >/dev/null 2>&1; then
        limited 300 cargo audit
        ran=1
    fi
    if [[ -z $ran ]]; then skip advisories "neither cargo-deny nor cargo-audit is installed"; fi
}

# Unit, property, model, fuzz and conformance tests, and loom's models, in one build with all assertions.
stage_unit() {
    CROSSLANE_SCHEDULES=0..5000 limited 1500 cargo test --locked --workspace --exclude crosslane-e2e --no-fail-fast -- --show-output || again unit
}

# Daemons joined by posted cables: moves, hosts between, native streams and one-sided access, by the tests that the stage `unit` runs
# on soft ones, a program that goes over to TCP, and one that sends several buffers by one call. The seed is printed.
stage_posted() {
    export CROSSLANE_TEST_DELAY_US=0-200 CROSSLANE_QUIRKS_DELAY_US=0-1000
    # Of the whole workspace, as in the stage `unit`: of one crate alone cargo would choose other features, and build all again.
    local some=(cargo test --locked --workspace --exclude crosslane-e2e)
    { limited 600 "${some[@]}" --test pair --test ring --test transit --test onesided --no-fail-fast -- --show-output &&
        limited 300 "${some[@]}" --test quirks -- out_of_band && limited 300 "${some[@]}" --test quirks -- gathered; } || again posted
}

# Random socket calls on the kernel's TCP and on streams, for 30 s, always the same ones, so that what fails is the change
# that is tested; an hour of others: `cargo xtask differ --minutes 60`.
stage_differ() {
    limited 400 cargo xtask differ --seconds 30 --seed 1
    # Streams of epoll sets that are looked at only when wakes name them, in sets of any size.
    CROSSLANE_TEST_COLD=1 limited 400 cargo test --locked --workspace --exclude crosslane-e2e --test quirks -- epoll
}

# Each fuzz target for 4 s, guided by coverage; an hour each: `cargo xtask fuzz --minutes 60`.
stage_fuzz() {
    if ! command -v c++ >/dev/null; then
        skip fuzz "no C++ compiler, which libFuzzer needs: scripts/install-packages.sh test"
        return 0
    fi
    limited 1200 cargo xtask fuzz --seconds 4
}

stage_memory() {
    if ! cargo +nightly --version >/dev/null 2>&1 && ! command -v valgrind >/dev/null; then
        skip memory "no nightly toolchain (miri, sanitizers) and no valgrind"
        return 0
    fi
    limited 600 crates/shm/tests/sanitize.sh
}

# What users get; the programs of the tests are built without its optimizations, each of which would take as long as a product's.
stage_release() {
    limited 1200 cargo build --release --locked --workspace --exclude crosslane-e2e --exclude xtask
}

# Runs kernel/tests/$1.sh for at most $2 seconds, with the words $3... A machine that cannot run it is a skip, but in CI, whose machine is root and has
# Debian's packages: there it is a failure.
vm_part() {
    local part=$1 limit=$2 code=0 why
    shift 2
    limited "$limit" "kernel/tests/$part.sh" "$@" || code=$?
    if [[ $code -ne 77 ]]; then return "$code"; fi
    # What it said last may still be on its way into the log.
    sleep 1
    why=$(sed -n 's/^cannot run: //p' "$logs/vm.log" | tail -n 1)
    if [[ -n ${CI:-} ]]; then
        echo "FAILED $part: CI may not skip it: $why"
        return 1
    fi
    skip vm "$part.sh: $why"
}

# The machines $@ once more, for a stage in which some of their tests failed, as `again` does for others.
vm_again() {
    local tests most=3 test
    sleep 1
    mapfile -t tests < <(sed -n 's/^FAILED \([a-z_0-9]*\):.*/\1/p' "$logs/vm.log")
    if [[ ${#tests[@]} -eq 0 || ${#tests[@]} -gt $most ]] || ! limited 600 kernel/tests/run.sh "$@" >"$logs/again.log" 2>&1; then
        return 1
    fi
    for test in "${tests[@]}"; do echo "UNSTEADY: $test failed, and passed when its machine was started once more"; done
}

# The kernel modules: in virtual machines what fits in this run's hour, and static checks, which build them for 6.1 and the newest kernel
# of backports. `make test-vm` runs all of it: all machines, a ring of three, packages.
stage_vm() {
    if [[ " ${failed[*]} " == *" release "* ]]; then
        skip vm "the release build failed, so there is nothing to test"
        return 0
    fi
    CROSSLANE_BIN=$(realpath "$target/release")
    export CROSSLANE_BIN
    limited 600 scripts/install-packages.sh vm
    vm_part run 900 streams alone || vm_again streams alone
    vm_part check 900
}

stage_e2e() {
    if [[ " ${failed[*]} " == *" release "* ]]; then
        skip e2e "the release build failed, so there is nothing to test"
        return 0
    fi
    CROSSLANE_BIN=$(realpath "$target/release")
    export CROSSLANE_BIN
    limited 1800 cargo test --locked -p crosslane-e2e --no-fail-fast -- --show-output --test-threads=1 || again e2e
}

# Programs and faults on posted cables with small windows: a part of what the stage `e2e` runs on soft ones.
stage_posted_e2e() {
    if [[ " ${failed[*]} " == *" release "* ]]; then
        skip posted_e2e "the release build failed, so there is nothing to test"
        return 0
    fi
    CROSSLANE_BIN=$(realpath "$target/release")
    export CROSSLANE_BIN CROSSLANE_E2E_DELAY_US=0-100 CROSSLANE_E2E_WINDOW=4M
    limited 600 cargo test --locked -p crosslane-e2e --test faults --test programs --no-fail-fast -- \
        --show-output --test-threads=1 death:: rubbish:: ring::cut::bytes_survive ring::between:: \
        performance::iperf3_one performance::sockperf_small python::echo database:: || again posted_e2e
}

# Transfers round a ring, compared, while cables are cut and programs and daemons killed; longer: `cargo xtask soak`.
stage_soak() {
    if [[ " ${failed[*]} " == *" release "* ]]; then
        skip soak "the release build failed, so there is nothing to test"
        return 0
    fi
    limited 400 cargo build --locked -p crosslane-e2e --bins
    CROSSLANE_BIN=$target/release limited 400 "$target/debug/crosslane-soak" --minutes 1
}

# Outside test suites without and under the library, a part on posted stores, too: what fits in about five minutes.
stage_suites() {
    if [[ " ${failed[*]} " == *" release "* ]]; then
        skip suites "the release build failed, so there is nothing to test"
        return 0
    fi
    limited 900 suites/run.py --smoke --posted 0-200 --bin "$target/release" --out "$target/suites"
}

# The lines of a log that a reader wants to see as they come.
interesting() {
    grep --line-buffered -E '^(test result|FAILED |cannot run|downloading|building|booting |UNSTEADY|failed once more|error: (could not|test failed)|    SKIPPED|SKIPPED|packages:|deps:|lines:|unsafe:|sanitize)|\.\.\. FAILED|not done after|^ +Running' || true
}

run_stage() {
    local name=$1 begin=$SECONDS code=0
    echo "=== $name"
    # In this shell, so that it can note what it skips; its output goes through a pipe of its own.
    exec 3> >(tee "$logs/$name.log" | interesting)
    local filter=$!
    set +e
    (
        set -e
        # A subshell has no traps of its own, and what it runs is in a process group of its own.
        trap interrupted INT TERM
        skipped=()
        "stage_$name"
        if [[ ${#skipped[@]} -gt 0 ]]; then printf '%s\n' "${skipped[@]}" >"$logs/$name.skipped"; fi
    ) >&3 2>&1
    code=$?
    set -e
    exec 3>&-
    wait "$filter" || true
    if [[ -f $logs/$name.skipped ]]; then mapfile -t -O "${#skipped[@]}" skipped <"$logs/$name.skipped"; fi
    times+=("$name $((SECONDS - begin)) s")
    if [[ $code -ne 0 ]]; then
        failed+=("$name")
        echo "--- $name failed (exit code $code); the end of $logs/$name.log:"
        tail -n 60 "$logs/$name.log"
    fi
}

# Sums `test result: .. N passed; N failed; N ignored` over all logs; a test that says SKIPPED was not a pass.
sum_up() {
    awk '/^test result:/ { for (i = 2; i <= NF; i++) {
             if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
         /^SKIPPED:/ { s++; p-- }
         END { printf "%d %d %d\n", p, f, s }' "$@"
}

# What the failed tests of a log said, the end of each; if none did, the end of the log.
complaints() {
    local said
    said=$(awk -v most=30 '
        function tell(   i) {
            if (name == "") return
            print name
            for (i = count > most ? count - most + 1 : 1; i <= count; i++) if (line[i] != "") print line[i]
            name = ""
        }
        /^failures:$/ { tell(); inside = !inside; next }
        inside && /^---- .*( stdout)? ----$/ { tell(); name = $0; count = 0; next }
        /^test result:/ { tell(); inside = 0 }
        inside { line[++count] = $0 }
        /^    (lost|unsteady): |^no stream carried|^FAILED / { print }
    ' "$1")
    if [[ -n $said ]]; then echo "$said"; else tail -n 15 "$1"; fi
}

main() {
    local stages=("$@") name passed lost ignored ran=()
    if [[ ${#stages[@]} -eq 0 ]]; then stages=("${all[@]}"); fi
    for name in "${stages[@]}"; do
        if ! declare -F "stage_$name" >/dev/null; then
            echo "no stage $name; there are: ${all[*]}" >&2
            exit 2
        fi
    done
    for name in "${stages[@]}"; do
        rm -f "$logs/$name.log" "$logs/$name.skipped"
        run_stage "$name"
        ran+=("$logs/$name.log")
    done
    read -r passed lost ignored < <(sum_up "${ran[@]}")
    local unsteady stage
    unsteady=$(cat "${ran[@]}" | grep -c '^UNSTEADY:' || true)
    # They passed in the end.
    passed=$((passed + unsteady)) lost=$((lost - unsteady))
    echo "=== summary"
    printf 'time: %s\n' "${times[@]}" "all $SECONDS s"
    grep -hE '^SKIPPED:' "${ran[@]}" | sort | uniq -c | sed 's/^ *\([0-9]*\) SKIPPED:/SKIPPED \1 times:/' || true
    if [[ ${#skipped[@]} -gt 0 ]]; then printf 'SKIPPED STAGE %s\n' "${skipped[@]}"; fi
    if [[ $unsteady -gt 0 ]]; then
        grep -hE '^UNSTEADY:' "${ran[@]}"
        for stage in "${ran[@]}"; do if grep -q '^UNSTEADY:' "$stage"; then complaints "$stage"; fi; done
    fi
    # A stage that failed without a failed test (format, lints, a build) counts as one.
    local extra=0
    for stage in "${failed[@]}"; do
        echo "FAILED STAGE: $stage ($logs/$stage.log)"
        complaints "$logs/$stage.log"
        if [[ $(sum_up "$logs/$stage.log" | cut -d' ' -f2) -eq 0 ]]; then extra=$((extra + 1)); fi
    done
    echo "$passed passed, $((lost + extra)) failed, $((ignored + ${#skipped[@]})) skipped"
    [[ ${#failed[@]} -eq 0 && $lost -eq 0 ]]
}

main "$@"
