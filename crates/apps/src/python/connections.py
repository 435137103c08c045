"""Connections by nothing but the socket module.

    connections.py server ADDRESS PORT               answers each byte with itself, on many connections at once
    connections.py rate ADDRESS PORT SECONDS row     connects, sends a byte, waits for it, closes
    connections.py rate ADDRESS PORT SECONDS kept    the same, but closes them all when there are 300

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


def rate(address, port, seconds, kind):
    """Counts connections."""
    most = KEPT if kind == "kept" else 1
    begin, done, kept = time.monotonic(), 0, []
    while time.monotonic() < begin + seconds:
        connection = socket.create_connection((address, port), timeout=20)
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        kept.append(connection)
        done += 1
        if len(kept) == most:
            while kept:
                kept.pop().close()
    return {"count": done, "seconds": time.monotonic() - begin}


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
print(json.dumps(rate(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])))
