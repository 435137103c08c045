"""Short connections to several ports in turn, each closed by the client first.

    server ADDRESS PORT COUNT
    client ADDRESS PORT COUNT ROUNDS BYTES
"""
import os
import socket
import sys
import threading


def serve_one(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def serve(listener):
    while True:
        serve_one(listener.accept()[0])


def ask(address, port, payload):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as connection:
        connection.connect((address, port))
        # Nobody else's option is to be seen.
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0:
            raise ValueError("SO_REUSEADDR is set")
        connection.sendall(payload)
        got = bytearray()
        while len(got) < len(payload):
            got += connection.recv(1 << 16)
    if got != payload:
        raise ValueError("other bytes came back")


def main():
    role, address, port, count, *more = sys.argv[1:]
    ports = range(int(port), int(port) + int(count))
    if role == "server":
        listeners = [
            socket.create_server(("::", at), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64) for at in reversed(ports)
        ]
        threads = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
        for thread in threads:
            thread.start()
        return
    rounds, size = map(int, more)
    payload = os.urandom(size)
    for _ in range(rounds):
        for at in ports:
            ask(address, at, payload)
    print("all came back")


main()
