"""Plain against library: what counts as a failure, and the table."""

from outcome import OK

REPEATS = 3


def compare(run, session, log=print):
    """Runs one suite both ways. Returns its row for the table.

    A test counts against the library if it passed plain, did not pass under the library (to be skipped is not to
    pass), did not pass three times out of three when repeated, and passes plain each time. Suites with tests of random
    names say by `whole` which entry tells that all was run."""
    plain = run.run(session, "plain")
    before = session.counters()
    library = run.run(session, "library")
    after = session.counters()
    row = {
        "suite": run.title,
        "place": run.place,
        "tests": len(plain),
        "plain": count(plain),
        "library": count(library),
        "streams": after["streams_opened"] - before["streams_opened"],
        "bytes": after["stream_tx_bytes"] - before["stream_tx_bytes"],
        "lost": {},
        "unsteady": {},
        "failed_plain": sorted(name for name, (status, _) in plain.items() if status == "fail"),
    }
    for name, (status, _) in sorted(plain.items()):
        seen = library.get(name, ("missing", "was not run"))
        if status != OK or seen[0] == OK:
            continue
        if seen[0] == "missing" and library.get(run.whole, ("",))[0] == OK:
            continue
        verdict = "lost" if repeated(run, session, name) else "unsteady"
        row[verdict][name] = f"{seen[0]}: {seen[1]}"
        log(f"    {verdict}: {name}: {seen[0]}: {seen[1]}")
    row["idle"] = run.carries and row["bytes"] == 0
    return row


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
    lines = [
        "| suite | address | tests | pass plain | pass under the library | lost | unsteady | streams | sent by streams |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['suite']} | {row['place']} | {row['tests']} | {row['plain'].get(OK, 0)} "
            f"| {row['library'].get(OK, 0)} | {len(row['lost'])} | {len(row['unsteady'])} | {row['streams']} "
            f"| {size(row['bytes'])} |"
        )
    return "\n".join(lines) + "\n"


def size(number):
    """Bytes for people."""
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
