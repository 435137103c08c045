"""A client of memcached by nothing but the socket module.

    memcached.py rate ADDRESS PORT SECONDS get     values of 100 B, one after the other

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import json
import socket
import sys
import time


def rate(address, port, seconds):
    """Counts values."""
    with socket.create_connection((address, int(port)), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        value = b"v" * 100
        wanted = b"VALUE key 0 100\r\n" + value + b"\r\nEND\r\n"
        connection.sendall(b"set key 0 0 100\r\n" + value + b"\r\n")
        assert connection.recv(100) == b"STORED\r\n"
        begin, done = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            connection.sendall(b"get key\r\n")
            got = connection.recv(4096)
            while len(got) < len(wanted):
                got += connection.recv(4096)
            assert got == wanted
            done += 1
        return {"count": done, "seconds": time.monotonic() - begin}


print(json.dumps(rate(sys.argv[2], sys.argv[3], float(sys.argv[4]))))
