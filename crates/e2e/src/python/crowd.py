"""Client processes that come, make one connection to one of several ports, and go; every tenth is killed with its connection
open. Its server is that of short.py.

    ADDRESS PORT COUNT PROCESSES AT_A_TIME
"""
import os
import signal
import socket
import sys

WORD = b"a word there and back"


def ask(address, port, killed):
    """The exit code: 0 if all was well."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as connection:
        connection.connect((address, port))
        connection.sendall(WORD)
        if connection.recv(4096) != WORD:
            return 2
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
    return 0


def begin(address, port, number):
    """The pid of a new client, and how it is to end."""
    killed = number % 10 == 9
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = ask(address, port, killed)
        finally:
            os._exit(code)
    return pid, -signal.SIGKILL if killed else 0


def crowd(address, port, count, processes, at_a_time):
    failed, here = 0, {}
    for number in range(processes + at_a_time):
        if number < processes:
            pid, end = begin(address, port + number % count, number)
            here[pid] = end
        if len(here) == at_a_time or (number >= processes and here):
            pid, status = os.wait()
            failed += os.waitstatus_to_exitcode(status) != here.pop(pid)
            if failed > 100:
                break
    print(f"{number + 1 - at_a_time} processes, {failed} failed")
    sys.exit(failed != 0 or bool(here))


address, *more = sys.argv[1:]
crowd(address, *map(int, more))
