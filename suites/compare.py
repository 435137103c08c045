"""Plain against library: what counts as a failure, and the table."""

from outcome import OK

REPEATS = 3


def begin(run, session):
    """Runs one suite without the library. Returns its row for the table."""
    plain = run.run(session, "plain")
    return {
        "suite": run.title,
        "place": run.place,
        "tests": len(plain),
        "plain": count(plain),
        "failed_plain": sorted(name for name, (status, _) in plain.items() if status == "fail"),
        "library": {},
        "lost": {},
        "unsteady": {},
        "idle": [],
    }, plain


def compare(run, session, kind, row, plain, log=print):
    """Runs one suite under the library and adds to its row what that says of this kind of memory.

    A test counts against the library if it passed plain, did not pass under the library (to be skipped is not to
    pass), did not pass three times out of three when repeated, and passes plain each time. Suites with tests of random
    names say by `whole` which entry tells that all was run."""
    before = session.counters()
    library = run.run(session, "library")
    after = session.counters()
    row["library"][kind] = {
        **count(library),
        "streams": after["streams_opened"] - before["streams_opened"],
        "bytes": after["stream_tx_bytes"] - before["stream_tx_bytes"],
    }
    for name, (status, _) in sorted(plain.items()):
        seen = library.get(name, ("missing", "was not run"))
        if status != OK or seen[0] == OK:
            continue
        if seen[0] == "missing" and library.get(run.whole, ("",))[0] == OK:
            continue
        verdict = "lost" if repeated(run, session, name) else "unsteady"
        row[verdict][f"{name} ({kind})"] = f"{seen[0]}: {seen[1]}"
        log(f"    {verdict}: {name}: {seen[0]}: {seen[1]}")
    if run.carries and row["library"][kind]["bytes"] == 0:
        row["idle"].append(kind)


def repeated(run, session, name):
    """Whether the failure stays."""
    def all_pass(mode):
        return all(run.run(session, mode, [name]).get(name, ("missing",))[0] == OK for _ in range(REPEATS))

    return not all_pass("library") and all_pass("plain")


def count(outcomes):
    """Numbers by status."""
    numbers = {}
    for status, _ in outcomes.values():
        numbers[status] = numbers.get(status, 0) + 1
    return numbers


def table(rows):
    """Markdown."""
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["library"]))
    names = ["suite", "address", "tests", "pass plain", *kinds, "lost", "unsteady", "streams", "sent by streams"]
    lines = ["| " + " | ".join(names) + " |", "|---|---" + "|---:" * (len(names) - 2) + "|"]
    for row in rows:
        seen = row["library"].values()
        counts = [row["library"][kind].get(OK, 0) if kind in row["library"] else "" for kind in kinds]
        cells = [row["suite"], row["place"], row["tests"], row["plain"].get(OK, 0), *counts,
                 len(row["lost"]), len(row["unsteady"]), sum(one["streams"] for one in seen),
                 size(sum(one["bytes"] for one in seen))]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def size(number):
    """Bytes for people."""
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
