"""Those who sleep on a stream, each in another call.

    server ADDRESS PORT
    client ADDRESS PORT

The server takes one connection for each way to sleep, says `asleep`, and for each one how it ended: `WAY ended HOW`.
The client says `connected`, and how each connection ended: `it ended HOW`.
"""
import errno
import select
import socket
import sys
import threading
import time


def recv(connection):
    pass


def poll(connection):
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    poller.poll()


def select_(connection):
    select.select([connection], [], [])


def epoll(connection):
    with select.epoll() as poller:
        poller.register(connection, select.EPOLLIN)
        poller.poll()


def epoll_edge(connection):
    with select.epoll() as poller:
        poller.register(connection, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        while not poller.poll():
            pass


WAYS = [recv, poll, select_, epoll, epoll_edge]


def tell(name, connection):
    try:
        how = "eof" if connection.recv(1) == b"" else "data"
    except OSError as error:
        how = errno.errorcode.get(error.errno, str(error))
    sys.stdout.write(f"{name} ended {how}\n")


def sleep(way, connection):
    way(connection)
    tell(way.__name__, connection)


def serve(address, port):
    listener = socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)
    sleepers = []
    for way in WAYS:
        connection, _ = listener.accept()
        assert connection.recv(1) == b"x"
        connection.sendall(b"y")
        sleepers.append(threading.Thread(target=sleep, args=(way, connection)))
        sleepers[-1].start()
    time.sleep(0.3)
    print("asleep", flush=True)
    for sleeper in sleepers:
        sleeper.join()


def ask(address, port):
    connections = [socket.create_connection((address, port)) for _ in WAYS]
    for connection in connections:
        connection.sendall(b"x")
        assert connection.recv(1) == b"y"
    print("connected", flush=True)
    for connection in connections:
        tell("it", connection)


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    ask(sys.argv[2], int(sys.argv[3]))
