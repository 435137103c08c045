"""A program that sends and is gone before the other one reads.

    server ADDRESS PORT
    client ADDRESS PORT FILE

The client says `ready`, sends when the file appears, and ends. The server says `all` if all of it came.
"""
import os
import socket
import sys
import time

BYTES = bytes(number % 251 for number in range(1500000))


def serve(address, port):
    connection, _ = socket.create_server((address, port)).accept()
    connection.recv(1)
    connection.sendall(b"!")
    got = b""
    while part := connection.recv(1 << 20):
        got += part
    print("all" if got == BYTES else f"only {len(got)}", flush=True)


def leave(address, port, file):
    connection = socket.create_connection((address, port))
    connection.sendall(b"!")
    connection.recv(1)
    print("ready", flush=True)
    while not os.path.exists(file):
        time.sleep(0.01)
    connection.sendall(BYTES)


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    leave(sys.argv[2], int(sys.argv[3]), sys.argv[4])
