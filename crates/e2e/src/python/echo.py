"""Echo by plain blocking sockets and threads.

    server ADDRESS PORT
    client ADDRESS PORT BYTES CONNECTIONS
"""
import os
import socket
import sys
import threading


def serve_one(connection):
    with connection:
        while data := connection.recv(1 << 18):
            connection.sendall(data)


def serve(address, port):
    listener = socket.create_server((address, port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def ask(address, port, count, failures):
    try:
        sent = os.urandom(count)
        with socket.create_connection((address, port), timeout=40) as connection:
            sender = threading.Thread(target=send, args=(connection, sent), daemon=True)
            sender.start()
            got = bytearray()
            while data := connection.recv(1 << 16):
                got += data
            sender.join(40)
        if got != sent:
            raise ValueError(f"{len(sent)} bytes were sent, {len(got)} came; equal: {got == sent[:len(got)]}")
    except Exception as error:
        failures.append(error)
        raise


def send(connection, sent):
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "server":
        serve(address, port)
    failures = []
    arguments = (address, port, int(sys.argv[4]), failures)
    clients = [threading.Thread(target=ask, args=arguments) for _ in range(int(sys.argv[5]))]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    sys.exit(1 if failures else 0)


main()
