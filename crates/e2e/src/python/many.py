"""Many connections at once.

    server ADDRESS PORT
    client ADDRESS PORT CONNECTIONS     a byte each way on each, `ready`; at SIGUSR1 a child that has inherited some does so too,
                                        `heirs`; at SIGUSR1 once more on all, `last`; at SIGUSR1 the end
    heir DESCRIPTOR..
"""
import selectors
import signal
import socket
import subprocess
import sys

HEIRS = 8


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


def echo(connections, byte):
    for connection in connections:
        connection.sendall(byte)
        got = connection.recv(1)
        assert got == byte, got


def ask(address, port, count):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    connections = []
    for _ in range(count):
        connections.append(socket.create_connection((address, port), timeout=60))
        echo(connections[-1:], b"1")
    print("ready")
    signal.sigwait([signal.SIGUSR1])
    inherited = [connection.fileno() for connection in connections[:HEIRS]]
    subprocess.run([sys.executable, __file__, "heir", *map(str, inherited)], pass_fds=inherited, check=True)
    print("heirs")
    signal.sigwait([signal.SIGUSR1])
    echo(connections, b"3")
    print("last")
    signal.sigwait([signal.SIGUSR1])


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "heir":
    inherited = [socket.socket(fileno=int(number)) for number in sys.argv[2:]]
    for connection in inherited:
        connection.settimeout(60)
    echo(inherited, b"2")
else:
    ask(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
