"""libuv's own tests, from a build folder that holds `uv_run_tests`; each test is a process of its own."""

import os
import pathlib
import subprocess

from outcome import FAIL, OK, SKIP, run_watched
from session import as_nobody

SILENCE_S = 30


class Libuv:
    """All tests of one build."""

    title, place, carries, whole = "libuv", "loopback", True, None

    def __init__(self, build, logs):
        self.program = pathlib.Path(build).resolve() / "uv_run_tests"
        self.log = logs / "libuv"

    def names(self):
        """All tests that the build has."""
        told = subprocess.run(as_nobody([self.program, "--list"]), cwd="/", capture_output=True, check=False, text=True)
        if told.returncode != 0:
            raise SystemExit(f"{self.program} --list: {told.stdout}{told.stderr}")
        return sorted({word for line in told.stdout.splitlines() for word in line.split()[:1]})

    def run(self, session, mode, only=None):
        """Outcomes by test: (status, why)."""
        return {name: self.one(session, mode, name) for name in only or self.names()}

    def one(self, session, mode, name):
        """One test."""
        log = pathlib.Path(f"{self.log}-{mode}-{name}.log")
        log.write_bytes(b"")
        log.chmod(0o666)
        # The library is for the test alone, not for what starts it.
        wanted = session.environment(mode)
        preload = [f"{key}={wanted[key]}" for key in ("LD_PRELOAD", "CROSSLANE_SOCKET") if key in wanted]
        words = as_nobody(["env", *preload, self.program, name])
        code = run_watched(words, session.environment("plain"), self.program.parent, log, SILENCE_S, lambda: 0)
        text = log.read_text(errors="replace")
        if code == 0:
            outcome = (SKIP, "") if "# SKIP" in text else (OK, "")
            os.unlink(log)
            return outcome
        return FAIL, "hangs" if code is None else (text.strip().splitlines() or ["?"])[-1][:300]


def runs(build, logs):
    """What there is to run."""
    return [Libuv(build, logs)]
