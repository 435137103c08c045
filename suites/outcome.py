"""Running a child that reports test by test, with a limit on silence."""

import os
import signal
import subprocess
import time

OK, FAIL, SKIP = "ok", "fail", "skip"
TICK_S = 0.05


def run_watched(words, environment, folder, log, silence_s, progress):
    """Runs `words` until it ends, or until `progress()` has told the same for `silence_s` seconds: then it is killed
    with all that it started. Returns its exit code, or None if it was killed."""
    with open(log, "ab") as out:
        child = subprocess.Popen(
            [str(word) for word in words], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
            stderr=out, start_new_session=True,
        )
    try:
        seen, since = progress(), time.monotonic()
        while child.poll() is None:
            if time.monotonic() - since > silence_s:
                return None
            now = progress()
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(TICK_S)
        return child.returncode
    finally:
        end_group(child)


def end_group(child):
    """Kills what is left of the child's process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
