#!/usr/bin/env python3
"""Runs outside test suites twice, without and under the library, and compares them test by test.

    suites/run.py --smoke                     what fits in about four minutes: CPython's socket tests (with --posted,
                                              those of asyncio)
    suites/run.py [--cpython MODULE,..]       all modules of CPython's that use sockets, or these
                  [--libuv BUILD]             a build folder of libuv with uv_run_tests
                  [--redis TREE]              a built source tree of Redis
                  [--node TREE]               a source tree of Node, of the release of the program `node`
                  [--places loopback,fabric]  which addresses, where a suite lets choose
                  [--posted US[-US],..]       under the library also where stores land so much later (a posted cable)

Exit code 0: no test fails under the library that passes without it, and streams carried what was sent. The table
goes to OUT/suites.md and OUT/suites.json, logs beside them.
"""

import argparse
import fnmatch
import json
import pathlib
import signal
import sys
import tempfile
import time

import compare
import cpython
import libuv
import node
import redis
import session


def arguments():
    """The command line."""
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=root / "target" / "release", help="folder of the built programs")
    parser.add_argument("--out", default=root / "target" / "suites", help="folder for the table and the logs")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--cpython", help="modules, separated by commas; `none` for none")
    parser.add_argument("--libuv")
    parser.add_argument("--redis")
    parser.add_argument("--node")
    parser.add_argument("--node-program", default="node")
    parser.add_argument("--places", default=None)
    parser.add_argument("--posted", default="", help="microseconds that stores are under way, or bounds: `0,10,0-1000`")
    parser.add_argument("--only", default="*", help="only suites whose name in the table matches, as `Redis unit/*`")
    return parser.parse_args()


def chosen(options, logs):
    """What to run."""
    modules = cpython.SMOKE if options.smoke else cpython.ALL
    if options.cpython:
        modules = [] if options.cpython == "none" else options.cpython.split(",")
    places = (options.places or ("loopback" if options.smoke else "loopback,fabric")).split(",")
    runs = []
    why = cpython.missing() if modules else None
    if why:
        session.skipped(f"suites: CPython's tests: {why}")
    else:
        runs += cpython.runs(modules, places, logs)
    if options.libuv:
        runs += libuv.runs(options.libuv, logs)
    if options.redis:
        runs += redis.runs(options.redis, logs)
    if options.node:
        runs += node.runs(options.node, options.node_program, logs)
    return [run for run in runs if fnmatch.fnmatch(run.title, options.only)]


def run_all(options, runs, out):
    """Runs each suite without the library, then under it, with a daemon for each kind of memory. Returns the rows."""
    begun, start = [], time.monotonic()
    # What fits: the others wait for time-outs most of the time.
    brief = [number for number, run in enumerate(runs) if not options.smoke or "asyncio" in run.title]
    for delay_us in [None, *filter(None, options.posted.split(","))]:
        kind = "pass under the library" if delay_us is None else f"posted, {delay_us} us"
        with tempfile.TemporaryDirectory(prefix="crosslane-suites-") as folder:
            with session.Session(options.bin, folder, delay_us) as host:
                for number in range(len(runs)) if delay_us is None else brief:
                    run = runs[number]
                    print(f"{time.monotonic() - start:6.0f} s  {run.title}, {run.place}, {kind}", flush=True)
                    if delay_us is None:
                        begun.append(compare.begin(run, host))
                    row, plain = begun[number]
                    compare.compare(run, host, kind, row, plain)
                    (out / "suites.json").write_text(json.dumps([row for row, _ in begun], indent=1) + "\n")
    return [row for row, _ in begun]


def main():
    """See above."""
    options = arguments()
    session.enter_namespaces()
    # The first process of a namespace gets only signals that it handles.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(f"interrupted by {signal.Signals(number).name}"))
    out = pathlib.Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for log in out.glob("*.log"):
        log.unlink()
    rows = run_all(options, chosen(options, out), out)
    text = compare.table(rows)
    (out / "suites.md").write_text(text)
    print(text)
    lost = sum(len(row["lost"]) for row in rows)
    idle = [f"{row['suite']} ({row['place']}, {kind})" for row in rows for kind in row["idle"]]
    seen = [outcomes for row in rows for outcomes in row["library"].values()]
    for name in idle:
        print(f"no stream carried anything: {name}")
    print(f"test result: {'ok' if not lost and not idle else 'FAILED'}. "
          f"{sum(outcomes.get('ok', 0) for outcomes in seen)} passed; {lost + len(idle)} failed; "
          f"{sum(outcomes.get('skip', 0) for outcomes in seen)} ignored")
    sys.exit(1 if lost or idle else 0)


if __name__ == "__main__":
    main()
