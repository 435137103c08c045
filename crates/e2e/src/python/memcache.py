"""A memcached client over plain sockets; values of many sizes, from several threads.

    ADDRESS PORT
"""
import os
import socket
import sys
import threading

FAILURES = []


def work(name):
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as connection:
            talk(connection, connection.makefile("rb"), name)
    except BaseException as error:
        FAILURES.append(error)
        raise


def talk(connection, lines, name):
    for number, size in enumerate([0, 1, 100, 5000, 100_000, 1_000_000, 4_000_000]):
        key, value = f"{name}-{number}".encode(), os.urandom(size)
        connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, size, value))
        answer = lines.readline()
        assert answer == b"STORED\r\n", answer
        connection.sendall(b"get %s\r\n" % key)
        head = lines.readline()
        assert head == b"VALUE %s 0 %d\r\n" % (key, size), head
        assert lines.read(size) == value, size
        assert lines.read(7) == b"\r\nEND\r\n"
    for number in range(500):
        connection.sendall(b"set n-%s 0 0 %d\r\n%d\r\n" % (name.encode(), len(str(number)), number))
        assert lines.readline() == b"STORED\r\n"


threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(1 if FAILURES else 0)
