"""Runs one module of CPython's test suite and writes a line of JSON at each start and end of a test.

    cpython_worker.py MODULE RESULTS ADDRESS4 ADDRESS6 [SELECTION]

SELECTION is a file of {"only": [ids] or null, "skip": [ids]}. The addresses take the place of the suite's own.
"""

import faulthandler
import json
import sys
import unittest

from test import support
from test.support import socket_helper


class Result(unittest.TestResult):
    """Writes as it goes, so that a reader knows which test hangs."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.worst = {}

    def write(self, **line):
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def note(self, test, status, why=""):
        if self.worst.get(test.id(), ("ok",))[0] != "fail":
            self.worst[test.id()] = (status, why)

    def startTest(self, test):
        super().startTest(test)
        self.write(start=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        status, why = self.worst.get(test.id(), ("ok", ""))
        self.write(end=test.id(), status=status, why=why)

    def failed(self, test, error):
        kind, value, _ = error
        self.note(test, "fail", f"{kind.__name__}: {value}"[:300])
        sys.stderr.write(f"--- {test.id()}\n{self._exc_info_to_string(error, test)}\n")
        if not isinstance(test, unittest.TestCase):
            self.write(end=test.id(), status="fail", why=str(value)[:300])

    def addError(self, test, err):
        self.failed(test, err)

    def addFailure(self, test, err):
        self.failed(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.failed(test, err)

    def addUnexpectedSuccess(self, test):
        self.note(test, "fail", "unexpected success")

    def addSkip(self, test, reason):
        self.note(test, "skip", reason)
        if not isinstance(test, unittest.TestCase):
            self.write(end=test.id(), status="skip", why=reason)


def flat(suite):
    """All cases of a suite, in order."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main(module, results, address4, address6, selection=None):
    """See above."""
    faulthandler.enable()
    faulthandler.register(__import__("signal").SIGUSR1, all_threads=True)
    # Elsewhere this resource means the Internet.
    support.use_resources = ["network"] if module == "test_socketserver" else []
    if address4 != "127.0.0.1":
        socket_helper.HOST = socket_helper.HOSTv4 = address4
        socket_helper.HOSTv6 = address6
        socket_helper.bind_port.__defaults__ = (address4,)
    chosen = {"only": None, "skip": []}
    if selection:
        with open(selection, encoding="utf-8") as file:
            chosen = json.load(file)
    only, skip = chosen["only"], set(chosen["skip"])
    tests = [
        test
        for test in flat(unittest.defaultTestLoader.loadTestsFromName(f"test.{module}"))
        if "VSOCK" not in test.id() and test.id() not in skip and (only is None or test.id() in only)
    ]
    with open(results, "a", encoding="utf-8") as out:
        unittest.TestSuite(tests).run(Result(out))
        out.write(json.dumps({"done": len(tests)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
