"""Connections opened and closed, one after the other; descriptors counted on both sides.

    server ADDRESS PORT            prints its number of descriptors whenever a connection says `count`
    client ADDRESS PORT TIMES
"""
import os
import socket
import sys


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def serve(address, port):
    listener = socket.create_server((address, port), family=socket.AF_INET6, backlog=64, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(4096):
                if data == b"count":
                    data = str(descriptors()).encode()
                connection.sendall(data)


def ask(address, port, data, more=0):
    """One exchange, then `more` bytes there and back: very short connections are left to TCP after a while."""
    with socket.create_connection((address, port), timeout=20) as connection:
        connection.sendall(data)
        got = connection.recv(4096)
        left = more
        connection.sendall(b"m" * more)
        while left > 0:
            left -= len(connection.recv(min(left, 65536)))
        return got


def count(address, port):
    return int(ask(address, port, b"count")), descriptors()


def loop(address, port, times):
    for number in range(20):
        ask(address, port, b"warm")
    before = count(address, port)
    for number in range(times):
        data = b"%d" % number
        got = ask(address, port, data, 20_000 if number % 2 else 0)
        assert got == data, (number, got)
    after = count(address, port)
    print("descriptors (server, client) before", before, "after", after)
    assert all(b <= a + 2 for a, b in zip(before, after)), (before, after)


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    loop(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
