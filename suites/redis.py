"""Redis's own tests, from a source tree that is built (`src/redis-server` and the others are there)."""

import pathlib
import re
import shutil

from outcome import FAIL, OK, SKIP, run_watched

SILENCE_S = 120
LINE = re.compile(r"^\[(ok|err|exception|skip|ignore|timeout)\]:? (.*?)(?: \(\d+ ms\))?$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Not about connections, and long; or about TLS, which the build need not have.
LEFT_OUT = re.compile(r"^unit/(moduleapi|cluster|tls)|^integration/(redis-benchmark|convert)")


class Unit:
    """One file of tests."""

    place, carries, whole = "loopback", True, "(the file)"

    def __init__(self, tree, name, logs):
        self.tree, self.name = pathlib.Path(tree).resolve(), name
        self.title = f"Redis {name}"
        self.log = logs / f"redis-{name.replace('/', '-')}"

    def run(self, session, mode, only=None):
        """Outcomes by test: (status, why). One test cannot be run alone: the whole file is."""
        log = pathlib.Path(f"{self.log}-{mode}.log")
        log.write_bytes(b"")
        words = ["tclsh", "tests/test_helper.tcl", "--single", self.name, "--clients", "1"]
        code = run_watched(words, session.environment(mode), self.tree, log, SILENCE_S, lambda: log.stat().st_size)
        outcomes = {}
        for line in COLOUR.sub("", log.read_text(errors="replace")).splitlines():
            found = LINE.match(line)
            if found:
                kind, name = found.groups()
                status = {"ok": OK, "skip": SKIP, "ignore": SKIP}.get(kind, FAIL)
                name = name.split(" in tests/")[0]
                outcomes[name] = (status, "" if status == OK else line[:300])
        if code != 0 and not any(status == FAIL for status, _ in outcomes.values()):
            outcomes[self.whole] = (FAIL, "hangs" if code is None else f"exit code {code}")
        else:
            outcomes[self.whole] = (OK if code == 0 else FAIL, "" if code == 0 else f"exit code {code}")
        return {name: outcome for name, outcome in outcomes.items() if only is None or name in only}


def runs(tree, logs):
    """What there is to run."""
    if not shutil.which("tclsh"):
        raise SystemExit("Redis's tests need tclsh")
    tests = pathlib.Path(tree) / "tests"
    names = sorted(str(path.relative_to(tests))[:-4] for folder in ("unit", "integration")
                   for path in (tests / folder).rglob("*.tcl"))
    return [Unit(tree, name, logs) for name in names if not LEFT_OUT.match(name)]
