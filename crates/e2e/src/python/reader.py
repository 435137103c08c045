"""A server that reads late: `server ADDRESS PORT`, `client ADDRESS PORT`.

The client sends `one`, and `two` at SIGUSR1, says `sent` behind each, and then how its wait for an answer ended. The server
says `accepted`, reads at SIGUSR1 until nothing comes any more, and says what came and how that ended.
"""
import errno
import signal
import socket
import sys


def all_of(connection):
    got = b""
    try:
        while part := connection.recv(100):
            got += part
        return got.decode(), "eof"
    except OSError as error:
        return got.decode(), errno.errorcode.get(error.errno, str(error))


def serve(address, port):
    connection, _ = socket.create_server((address, port)).accept()
    print("accepted", flush=True)
    signal.sigwait([signal.SIGUSR1])
    got, end = all_of(connection)
    print(f"got {got} ended {end}", flush=True)


def ask(address, port):
    connection = socket.create_connection((address, port))
    connection.sendall(b"one")
    print("sent one", flush=True)
    signal.sigwait([signal.SIGUSR1])
    connection.sendall(b"two")
    print("sent two", flush=True)
    print(f"ended {all_of(connection)[1]}", flush=True)


signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
if sys.argv[1] == "server":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    ask(sys.argv[2], int(sys.argv[3]))
