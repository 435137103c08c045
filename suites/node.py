"""Node's own tests, from a source tree of the release that runs them; each test is a process of its own."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import tempfile

from outcome import FAIL, OK, SKIP, run_watched

SILENCE_S = 60
AT_A_TIME = 3
FLAGS = re.compile(r"^// Flags: (.*)$", re.MULTILINE)


class Group:
    """All tests of one prefix, as `net`."""

    place, carries, whole = "loopback", True, None

    def __init__(self, tree, program, prefix, logs):
        self.tree, self.program, self.prefix = pathlib.Path(tree).resolve(), program, prefix
        self.title = f"Node {prefix}"
        self.log = logs / "node"

    def names(self):
        """All tests of the group."""
        return sorted(path.name for path in (self.tree / "test" / "parallel").glob(f"test-{self.prefix}-*.*js"))

    def run(self, session, mode, only=None):
        """Outcomes by test: (status, why)."""
        names = only or self.names()
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            return dict(zip(names, pool.map(lambda name: self.one(session, mode, name), names)))

    def one(self, session, mode, name):
        """One test."""
        path = self.tree / "test" / "parallel" / name
        flags = [flag for line in FLAGS.findall(path.read_text()) for flag in line.split()]
        log = pathlib.Path(f"{self.log}-{mode}-{name}.log")
        log.write_bytes(b"")
        with tempfile.TemporaryDirectory(prefix="suite-") as folder:
            environment = {**session.environment(mode), "NODE_TEST_DIR": folder}
            code = run_watched([self.program, *flags, path], environment, self.tree, log, SILENCE_S, lambda: 0)
        text = log.read_text(errors="replace")
        if code == 0:
            os.unlink(log)
            return (SKIP, "") if "# Skipped" in text else (OK, "")
        errors = [line for line in text.splitlines() if "Error" in line]
        return FAIL, "hangs" if code is None else (errors or text.strip().splitlines() or [f"code {code}"])[0][:300]


def runs(tree, program, logs):
    """What there is to run."""
    if not shutil.which(program):
        raise SystemExit(f"there is no {program} to run Node's tests")
    groups = ["net", "http", "https", "tls", "http2", "cluster"]
    return [Group(tree, program, prefix, logs) for prefix in groups]
