"""A server that accepts late: `server ADDRESS PORT`, `client ADDRESS PORT`.

The server accepts at SIGUSR1, answers what it gets, and says `got N` or `failed WHY`; the client sends and says `sent`,
and `answered` or `ended WHY`.
"""
import errno
import signal
import socket
import sys


def why(error):
    return errno.errorcode.get(error.errno, str(error)) if error.errno else str(error)


def serve(address, port):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    listener = socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)
    signal.sigwait([signal.SIGUSR1])
    connection, _ = listener.accept()
    print("accepted", flush=True)
    try:
        data = connection.recv(100)
        connection.sendall(data)
        print(f"got {len(data)}", flush=True)
    except OSError as error:
        print(f"failed {why(error)}", flush=True)
    signal.sigwait([signal.SIGUSR1])


def ask(address, port):
    connection = socket.create_connection((address, port))
    try:
        connection.sendall(b"early")
        print("sent", flush=True)
        data = connection.recv(100)
        print("answered" if data == b"early" else "ended eof", flush=True)
    except OSError as error:
        print(f"ended {why(error)}", flush=True)


if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    ask(sys.argv[2], int(sys.argv[3]))
