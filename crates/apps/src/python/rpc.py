"""gRPC without generated code: messages are bytes, and each call answers with what it was sent.

    rpc.py server ADDRESS PORT
    rpc.py check ADDRESS PORT                  unary calls of many sizes, a stream both ways, 100 MB; compares
    rpc.py rate ADDRESS PORT SECONDS unary     calls of 64 B, one after the other
    rpc.py rate ADDRESS PORT SECONDS bulk      calls of 16 MB; counts MB (10^6) both ways

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import json
import os
import sys
import threading
import time
from concurrent import futures

import grpc

NAME = "crosslane.Echo"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
BULK = 16_000_000


class Echo(grpc.GenericRpcHandler):
    """Both methods."""

    def service(self, details):
        if details.method.endswith("/Unary"):
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, _: iter(requests))


def target(address, port):
    """As gRPC writes it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def serve(address, port):
    """Serves until it is ended."""
    server = grpc.server(futures.ThreadPoolExecutor(8), options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    assert server.add_insecure_port(target(address, port)), "the port cannot be had"
    server.start()
    server.wait_for_termination()


def check(unary, stream):
    """Compares what comes back, from several threads too; returns how many bytes were sent."""
    total = 0
    for size in [0, 1, 4096, 70_000, 1_000_003, 100_000_000]:
        sent = os.urandom(size)
        assert unary(sent) == sent, f"{size} bytes came back as others"
        total += size
    parts = [os.urandom(50_000) for _ in range(40)]
    assert list(stream(iter(parts))) == parts, "the stream brought others"
    total += sum(map(len, parts))
    failed = []

    def ask(number):
        for step in range(100):
            sent = bytes([number]) * (step * 37)
            if unary(sent) != sent:
                failed.append((number, step))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    return total


def rate(unary, seconds, kind):
    """Counts calls, or megabytes both ways."""
    sent = os.urandom(BULK if kind == "bulk" else 64)
    unary(sent)
    begin, done = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        assert len(unary(sent)) == len(sent)
        done += 1
    took = time.monotonic() - begin
    return {"count": 2 * done * BULK / 1e6 if kind == "bulk" else done, "seconds": took}


def main(kind, address, port, *rest):
    """See above."""
    if kind == "server":
        return serve(address, port)
    with grpc.insecure_channel(target(address, port), options=OPTIONS) as channel:
        unary = channel.unary_unary(f"/{NAME}/Unary")
        if kind == "check":
            print(check(unary, channel.stream_stream(f"/{NAME}/Stream")))
        else:
            print(json.dumps(rate(unary, float(rest[0]), rest[1])))


main(*sys.argv[1:])
