"""A host of its own for a run: namespaces, a daemon, its counters.

The runner executes itself again inside fresh network, process and mount namespaces. Whatever a suite leaves behind
ends with them, its ports disturb nobody, and the fabric's addresses are there to be used.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

INSIDE = "CROSSLANE_SUITES_INSIDE"
FABRIC = ("10.86.0.1", "fd86::1")
RULES = [f"use both {role} * {net}:*" for role in ("client", "server") for net in ("127.0.0.0/8", "::1/128")]
START_S = 10


def skipped(why):
    """Says so and ends; in CI nothing may be skipped."""
    print(f"SKIPPED: {why}")
    sys.exit(1 if os.environ.get("CI") == "true" else 0)


def enter_namespaces():
    """Runs this program again inside namespaces and exits with its code; returns if we are inside already."""
    if os.environ.get(INSIDE):
        return
    words = ["unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        skipped("suites: no right to make network and process namespaces")
    command = [*words, sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
    os.execvpe(words[0], command, {**os.environ, INSIDE: "1"})


class Session:
    """A running daemon; use it as a context."""

    def __init__(self, binaries, folder, delay_us=None):
        """`delay_us`: stores inside the host land so many microseconds later (`LEAST-MOST`); None: at once."""
        self.delay_us = delay_us
        self.binaries = pathlib.Path(binaries).resolve()
        self.folder = pathlib.Path(folder)
        self.socket = self.folder / "control.sock"
        self.library = self.binaries / "libcrosslane_sockets.so"
        self.daemon = None

    def __enter__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.folder.chmod(0o755)
        self.name_localhost(("127.0.0.1", "::1"))
        subprocess.run(["mount", "--bind", self.folder / "hosts", "/etc/hosts"], check=True)
        config = self.folder / "host.toml"
        rules = ", ".join(json.dumps(rule) for rule in RULES)
        config.write_text(f'host = 1\ncontrol = "{self.socket}"\ninterface = "xl0"\nrules = [{rules}]\n{self.inside()}')
        with open(self.folder / "daemon.log", "ab") as log:
            self.daemon = subprocess.Popen(
                [self.binaries / "crosslaned", "--config", config], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not self.socket.exists() or self.status() is None:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                sys.exit("the daemon did not start:\n" + (self.folder / "daemon.log").read_text())
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        try:
            self.daemon.wait(10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        subprocess.run(["umount", "/etc/hosts"], check=False)

    def inside(self):
        """The part of the configuration that says how stores go."""
        if self.delay_us is None:
            return ""
        least, _, most = self.delay_us.partition("-")
        return f'[inside]\nkind = "posted"\ndelay_us = [{least}, {most or least}]\n'

    def name_localhost(self, addresses):
        """What `localhost` means from here on, for suites that know no other address."""
        (self.folder / "hosts").write_text("".join(f"{address} localhost\n" for address in addresses))

    def environment(self, mode):
        """The environment of a program: `plain`, or under the library."""
        kept = {key: value for key, value in os.environ.items() if key not in (INSIDE, "LD_PRELOAD")}
        if mode == "plain":
            return kept
        return {**kept, "LD_PRELOAD": str(self.library), "CROSSLANE_SOCKET": str(self.socket)}

    def status(self):
        """The daemon's status, or None if it does not answer."""
        environment = {**os.environ, "CROSSLANE_SOCKET": str(self.socket)}
        words = [self.binaries / "crosslane", "status", "--json"]
        told = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=30)
        return json.loads(told.stdout) if told.returncode == 0 else None

    def counters(self):
        """The daemon's counters."""
        status = self.status()
        if status is None:
            sys.exit("the daemon does not answer any more:\n" + (self.folder / "daemon.log").read_text()[-4000:])
        return status["counters"]


def as_nobody(words):
    """A command for suites that refuse to run as root."""
    if os.geteuid() == 0 and shutil.which("setpriv"):
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    return list(words)
