"""Connections that last and say nothing.

    server ADDRESS PORT
    client ADDRESS PORT CONNECTIONS     one echo on each, `ready`, then idle until SIGUSR1, one more echo on each
"""
import selectors
import signal
import socket
import sys


def serve(address, port):
    listener = socket.create_server((address, port), family=socket.AF_INET6, backlog=512, dualstack_ipv6=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif data := key.fileobj.recv(4096):
                key.fileobj.sendall(data)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def echo(connections, data):
    for connection in connections:
        connection.sendall(data)
        got = connection.recv(4096)
        assert got == data, got


def ask(address, port, count):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    connections = [socket.create_connection((address, port), timeout=20) for _ in range(count)]
    echo(connections, b"first")
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection, selectors.EVENT_READ)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    selector.register(reader, selectors.EVENT_READ)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    print("ready")
    ready = [key.fileobj for key, _ in selector.select()]
    assert ready == [reader], f"{len(ready)} idle connections became ready"
    echo(connections, b"last")


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    ask(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
