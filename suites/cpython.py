"""CPython's own tests (Debian: libpython3.11-testsuite), module by module."""

import json
import pathlib
import shutil
import subprocess
import tempfile

from outcome import FAIL, OK, SKIP, run_watched
from session import FABRIC

PYTHON = "/usr/bin/python3.11"
WORKER = pathlib.Path(__file__).resolve().with_name("cpython_worker.py")
SILENCE_S = 60
RESTARTS = 20
SMOKE = ["test_socket", "test_selectors", "test_ssl", "test_asyncio.test_streams", "test_asyncio.test_sock_lowlevel",
         "test_asyncio.test_sendfile", "test_asyncio.test_server", "test_asyncio.test_sslproto"]
ALL = ["test_socket", "test_selectors", "test_asyncio", "test_ssl", "test_socketserver", "test_httplib",
       "test_httpservers", "test_ftplib", "test_smtplib", "test_poplib", "test_imaplib", "test_telnetlib",
       "test_urllib2_localnet", "test_xmlrpc", "test_asyncore", "test_asynchat", "test_select", "test_poll",
       "test_epoll", "test_multiprocessing_fork", "test_multiprocessing_spawn", "test_multiprocessing_forkserver"]
# These make no TCP connections of their own, or only to where nobody listens.
QUIET = {"test_selectors", "test_telnetlib", "test_select", "test_poll", "test_epoll",
         "test_asyncio.test_server", "test_multiprocessing_fork", "test_multiprocessing_spawn",
         "test_multiprocessing_forkserver"}


def missing():
    """Why the suite cannot run here, or None."""
    probe = subprocess.run([PYTHON, "-c", "import test.test_socket"], capture_output=True, check=False) \
        if shutil.which(PYTHON) else None
    return None if probe and probe.returncode == 0 else "libpython3.11-testsuite is not installed"


class Module:
    """One module at one kind of address."""

    whole = None

    def __init__(self, name, place, logs):
        self.name, self.place = name, place
        self.title = f"CPython {name}"
        self.carries = name not in QUIET
        self.addresses = FABRIC if place == "fabric" else ("127.0.0.1", "::1")
        self.log = logs / f"{name}-{place}"

    def run(self, session, mode, only=None):
        """Outcomes by test: (status, why). A test that hangs is killed and the rest goes on in another process."""
        outcomes = {}
        session.name_localhost(self.addresses)
        for _ in range(RESTARTS):
            with tempfile.TemporaryDirectory(prefix="suite-") as folder:
                if self.once(session, mode, only, outcomes, pathlib.Path(folder)):
                    break
        session.name_localhost(("127.0.0.1", "::1"))
        return outcomes

    def once(self, session, mode, only, outcomes, folder):
        """One process. Returns whether nothing is left to be run."""
        results, selection = folder / "results", folder / "selection"
        results.touch()
        selection.write_text(json.dumps({"only": only, "skip": sorted(outcomes)}))
        work = folder / "work"
        work.mkdir()
        words = [PYTHON, WORKER, self.name, results, *self.addresses, selection]
        code = run_watched(words, session.environment(mode), work, f"{self.log}-{mode}.log", SILENCE_S,
                           lambda: results.stat().st_size)
        running, done = None, False
        for line in map(json.loads, results.read_text().splitlines()):
            running = line.get("start", running)
            done = done or "done" in line
            if "end" in line:
                outcomes[line["end"]] = ({"ok": OK, "skip": SKIP}.get(line["status"], FAIL), line["why"])
                running = None
        if running:
            outcomes[running] = (FAIL, "hangs" if code is None else f"the process ended with code {code}")
        if not done and running is None:
            outcomes[f"{self.name} (at the end)"] = (FAIL, f"the process ended with code {code}")
            return True
        return done


def runs(names, places, logs):
    """What there is to run."""
    return [Module(name, place, logs) for name in names for place in places]
