"""ZeroMQ: a server that sends back whatever comes.

    zeromq.py server ADDRESS PORT
    zeromq.py check ADDRESS PORT               messages of many sizes and parts from several sockets; compares
    zeromq.py rate ADDRESS PORT SECONDS ask    64 B there and back, one after the other
    zeromq.py rate ADDRESS PORT SECONDS flow   messages of 64 KB, 32 under way; counts MB (10^6) both ways

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import json
import os
import sys
import time

import zmq

PART = 65536
UNDER_WAY = 32


def endpoint(address, port):
    """As ZeroMQ writes it."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def serve(context, at):
    """Serves until it is ended."""
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.IPV6, 1)
    router.setsockopt(zmq.SNDHWM, 0)
    router.bind(at)
    while True:
        router.send_multipart(router.recv_multipart(copy=False), copy=False)


def connected(context, kind, at):
    """A socket that gives up after half a minute."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 30_000)
    socket.connect(at)
    return socket


def check(context, at):
    """Compares what comes back; returns how many bytes were sent."""
    ask, total = connected(context, zmq.REQ, at), 0
    for size in [0, 1, 31, 4096, 8193, 300_000, 1_000_003, 30_000_000]:
        parts = [os.urandom(size), b"", os.urandom(size % 1000)]
        ask.send_multipart(parts)
        assert ask.recv_multipart() == parts, f"{size} bytes came back as others"
        total += sum(map(len, parts))
    many = [connected(context, zmq.DEALER, at) for _ in range(16)]
    for step in range(200):
        for number, socket in enumerate(many):
            socket.send(b"%d %d " % (number, step) * (step + 1))
    for number, socket in enumerate(many):
        for step in range(200):
            sent = b"%d %d " % (number, step) * (step + 1)
            assert socket.recv() == sent, f"message {step} of socket {number} is another"
            total += len(sent)
    return total


def rate(context, at, seconds, kind):
    """Counts questions, or megabytes both ways."""
    socket = connected(context, zmq.DEALER, at)
    sent = os.urandom(PART if kind == "flow" else 64)
    under_way = UNDER_WAY if kind == "flow" else 1
    for _ in range(under_way):
        socket.send(sent)
    assert socket.recv() == sent
    begin, done = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        socket.send(sent)
        assert len(socket.recv()) == len(sent)
        done += 1
    took = time.monotonic() - begin
    return {"count": 2 * done * PART / 1e6 if kind == "flow" else done, "seconds": took}


def main(kind, address, port, *rest):
    """See above."""
    context, at = zmq.Context(), endpoint(address, port)
    if kind == "server":
        serve(context, at)
    elif kind == "check":
        print(check(context, at))
    else:
        print(json.dumps(rate(context, at, float(rest[0]), rest[1])))
    context.destroy(linger=0)


main(*sys.argv[1:])
