#!/usr/bin/env python3
"""Compares two builds by turns on one machine: BASE, NEW, NEW, BASE, .. of each part, and medians of the ratios of single turns.

    scripts/compare-builds.py BASE NEW [--turns N] [--only PART,..] [--json FILE]

BASE and NEW are folders with the programs of a release build (`target/release` of two work trees). Each build measures itself by
its own `crosslane bench` and `crosslane perf`; figures of the same name and unit are compared. A ratio above 1 is better; `!` marks a
median below 0.97. Nothing else should run meanwhile.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PARTS = {
    "programs": ["bench", "quick", "--runs", "3", "--no-pinned", "--only", "iperf3,sockperf,redis"],
    "setup": ["bench", "quick", "--runs", "3", "--no-pinned", "--only", "connect loop"],
    "messages": ["perf", "--runs", "3", "--only", "messages"],
    "streams": ["perf", "--runs", "3", "--only", "streams", "--sizes", "64,4K,128K,1M"],
    "sdp": ["bench", "sdp", "--runs", "1", "--sizes", "64,4K,64K,1M", "--replies", "64", "--millis", "200"],
}
LESS_IS_BETTER = {"ns", "us", "cycles", "copies", "messages", "% of a core", "10^3 clocks at 1.8 GHz"}
BAR = 0.97
LONGEST = 900


def measure(build, words):
    """Figures of a build by name: what it reached."""
    command = [os.path.join(build, "crosslane"), *words, "--json"]
    # The machine's state changes within seconds; a run that fails is left out of its turn.
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        print(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return {}
    figures = report["figures"] if isinstance(report, dict) else report
    return {
        (figure["group"], figure["case"], figure["unit"]): figure["sample"]["median"]
        for figure in figures
        if figure.get("sample") and figure["sample"]["median"] > 0
    }


def ratio(unit, base, new):
    return base / new if unit in LESS_IS_BETTER else new / base


def take_turns(builds, parts, turns):
    """For each figure the pairs of what both builds reached in one turn."""
    pairs = {}
    for turn in range(turns):
        for part in parts:
            order = list(builds) if turn % 2 == 0 else list(reversed(builds))
            got = {build: measure(build, PARTS[part]) for build in order}
            base, new = (got[build] for build in builds)
            for key in base.keys() & new.keys():
                pairs.setdefault((part, *key), []).append((base[key], new[key]))
            print(f"turn {turn + 1} of {turns}: {part}, {len(base.keys() & new.keys())} figures", file=sys.stderr)
    return pairs


def row(key, pairs):
    part, group, case, unit = key
    ratios = sorted(ratio(unit, base, new) for base, new in pairs)
    return {
        "part": part,
        "figure": f"{group}, {case}",
        "unit": unit,
        "base": statistics.median(base for base, _ in pairs),
        "new": statistics.median(new for _, new in pairs),
        "ratio": statistics.median(ratios),
        "least": ratios[0],
        "most": ratios[-1],
        "turns": len(ratios),
    }


def show(rows):
    width = max((len(row["figure"]) for row in rows), default=0)
    print(f"{'figure':{width}}  {'unit':>12} {'base':>12} {'new':>12}  ratio  least   most  turns")
    for it in rows:
        mark = "!" if it["ratio"] < BAR else " "
        print(
            f"{it['figure']:{width}}  {it['unit']:>12} {it['base']:12.4g} {it['new']:12.4g} "
            f"{it['ratio']:6.3f} {it['least']:6.3f} {it['most']:6.3f} {it['turns']:6}{mark}"
        )
    below = sum(row["ratio"] < BAR for row in rows)
    all_of_them = statistics.median(row["ratio"] for row in rows) if rows else float("nan")
    print(f"{len(rows)} figures, median of all ratios {all_of_them:.3f}, {below} below {BAR}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), metavar="PART,..")
    parser.add_argument("--json", metavar="FILE")
    words = parser.parse_args()
    if unknown := set(words.only) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    begin = time.monotonic()
    pairs = take_turns((words.base, words.new), words.only, words.turns)
    rows = [row(key, pairs[key]) for key in sorted(pairs)]
    show(rows)
    print(f"{time.monotonic() - begin:.0f} s")
    if words.json:
        with open(words.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
