"""A client of ZooKeeper (kazoo).

    zookeeper.py check ADDRESS PORT              values of many sizes, a watch, children, ephemeral nodes; compares
    zookeeper.py rate ADDRESS PORT SECONDS get   reads of 1 KB, one after the other
    zookeeper.py rate ADDRESS PORT SECONDS many  reads of 1 KB, 32 under way

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import collections
import json
import os
import sys
import threading
import time

from kazoo.client import KazooClient

UNDER_WAY = 32


def connected(address, port):
    """A client with a session."""
    host = f"[{address}]" if ":" in address else address
    client = KazooClient(hosts=f"{host}:{port}", timeout=20)
    client.start(timeout=20)
    return client


def check(address, port):
    """Compares what comes back; returns how many bytes were written."""
    one, other = connected(address, port), connected(address, port)
    changed, total = threading.Event(), 0
    one.create("/value", b"")
    other.get("/value", watch=lambda event: changed.set())
    for size in [1, 100, 4096, 65_537, 1_000_000]:
        sent = os.urandom(size)
        one.set("/value", sent)
        got, stat = other.get("/value")
        assert got == sent and stat.dataLength == size, f"{size} bytes came back as others"
        total += size
    assert changed.wait(10), "the watch was not told"
    paths = [one.create_async("/list-", b"%d" % step * 50, sequence=True) for step in range(300)]
    for step, path in enumerate(paths):
        assert other.get(path.get(timeout=20))[0] == b"%d" % step * 50, step
    one.create("/mine", b"", ephemeral=True)
    assert other.exists("/mine")
    one.stop()
    one.close()
    assert not other.exists("/mine"), "an ephemeral node outlived its session"
    other.stop()
    other.close()
    return total


def rate(client, seconds, kind):
    """Counts reads."""
    client.ensure_path("/rate")
    client.set("/rate", os.urandom(1024))
    under_way = UNDER_WAY if kind == "many" else 1
    asked = collections.deque(client.get_async("/rate") for _ in range(under_way))
    begin, done = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        assert len(asked.popleft().get(timeout=20)[0]) == 1024
        asked.append(client.get_async("/rate"))
        done += 1
    took = time.monotonic() - begin
    for last in asked:
        last.get(timeout=20)
    return {"count": done, "seconds": took}


def main(kind, address, port, *rest):
    """See above."""
    if kind == "check":
        print(check(address, port))
    else:
        client = connected(address, port)
        print(json.dumps(rate(client, float(rest[0]), rest[1])))
        client.stop()
        client.close()


main(*sys.argv[1:])
