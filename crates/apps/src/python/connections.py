"""Connections by nothing but the socket module.

    connections.py server ADDRESS PORT               answers each byte with itself, on many connections at once
    connections.py rate ADDRESS PORT SECONDS row     connects, sends a byte, waits for it, closes
    connections.py rate ADDRESS PORT SECONDS kept    the same, but closes them all when there are 300
    connections.py hold ADDRESS PORT COUNT           opens them, uses each once, prints "ready", and keeps them until it is ended

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import json
import selectors
import socket
import sys
import time

KEPT = 300


def serve(address, port):
    """Serves until it is ended."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=512)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            connection = key.fileobj
            try:
                data = connection.recv(4096)
                connection.sendall(data)
            except ConnectionError:
                data = b""
            if not data:
                selector.unregister(connection)
                connection.close()


def used(address, port):
    """A connection that has answered once."""
    connection = socket.create_connection((address, port), timeout=20)
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    return connection


def hold(address, port, count):
    """Keeps connections on which nothing moves."""
    connections = [used(address, port) for _ in range(count)]
    connections[0].settimeout(None)
    print("ready", flush=True)
    connections[0].recv(1)


def rate(address, port, seconds, kind):
    """Counts connections."""
    most = KEPT if kind == "kept" else 1
    begin, done, kept = time.monotonic(), 0, []
    while time.monotonic() < begin + seconds:
        kept.append(used(address, port))
        done += 1
        if len(kept) == most:
            while kept:
                kept.pop().close()
    return {"count": done, "seconds": time.monotonic() - begin}


role, where = sys.argv[1], (sys.argv[2], int(sys.argv[3]))
if role == "server":
    serve(*where)
elif role == "hold":
    hold(*where, int(sys.argv[4]))
else:
    print(json.dumps(rate(*where, float(sys.argv[4]), sys.argv[5])))
