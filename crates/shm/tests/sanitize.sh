#!/bin/sh
# Runs the tests of this crate under whatever memory checker the toolchain has: miri where it is installed, and
# AddressSanitizer of a nightly toolchain, else valgrind. Says what ran. ThreadSanitizer is of no use without an
# instrumented standard library (it sees neither its joins nor any fence): loom (ring_loom.rs) tries the orders.
# Exit code 0: what could run passed.
set -eu
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
folder=${CARGO_TARGET_DIR:-../../target}
ran=
tests="--lib --test ring_model --test ring_hostile --test ring_threads"

if cargo +nightly miri --version >/dev/null 2>&1; then
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib --test ring_model -- copy ring
    ran="$ran miri"
fi
if cargo +nightly --version >/dev/null 2>&1; then
    # The standard library is not instrumented, which the compiler wants to be told is on purpose.
    RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" CARGO_TARGET_DIR="$folder/address" PROPTEST_CASES=400 \
        cargo +nightly test --quiet --target "$host" $tests
    ran="$ran address-sanitizer"
elif command -v valgrind >/dev/null; then
    programs=$(cargo test --no-run $tests --message-format=json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    for program in $programs; do
        valgrind --quiet --error-exitcode=1 "$program" --skip ring_is_a_queue --skip hostile_words --skip hostile_credit
    done
    ran="$ran valgrind"
fi
echo "sanitize: ran${ran:- nothing: neither miri, nor a nightly toolchain, nor valgrind is here}"
