"""Traffic without end, both ways, to see what happens when something dies.

    server ADDRESS PORT     prints `flowing` when bytes flow, then `ended NAME` for each connection
    client ADDRESS PORT     prints `flowing`, then `ended NAME`; NAME is `eof` or an errno's name
"""
import errno
import socket
import sys
import threading


def flow(connection):
    try:
        total, told = 0, False
        connection.sendall(b"x" * 100_000)
        while data := connection.recv(1 << 16):
            connection.sendall(data)
            total += len(data)
            if total > 5_000_000 and not told:
                print("flowing", flush=True)
                told = True
        print("ended eof", flush=True)
    except OSError as error:
        print("ended", errno.errorcode.get(error.errno, error), flush=True)
    finally:
        connection.close()


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "client":
        connection = socket.create_connection((address, port), timeout=20)
        connection.settimeout(None)
        flow(connection)
        return
    listener = socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=flow, args=(connection,), daemon=True).start()


main()
