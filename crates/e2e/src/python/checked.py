"""Sends until a file appears, and checks that all of it comes back; half of the connections are new ones all the time.

    ADDRESS PORT FILE SEED

The far side is an echo server. A connection may be refused while there is no way to it.
"""
import errno
import os
import random
import socket
import sys
import threading
import time

BLOCK = 1 << 20
# How much goes over one connection of each thread, bytes.
LIMITS = (1 << 40, 1 << 40, 3000, 5000000)
SIZES = (1, 100, 5000, 200000, 900000)

to, stop, seed = (sys.argv[1], int(sys.argv[2])), sys.argv[3], int(sys.argv[4])
block = random.Random(seed).randbytes(BLOCK)
totals = []


def piece(at, count):
    at %= BLOCK
    return (block[at:] + block)[:count]


def fail(*words):
    print(*words, flush=True)
    os._exit(1)


def one(connection, dice, limit):
    sent = [0]

    def send():
        while not os.path.exists(stop) and sent[0] < limit:
            part = piece(sent[0], dice.choice(SIZES))
            connection.sendall(part)
            sent[0] += len(part)
        connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    got = 0
    while part := connection.recv(1 << 18):
        if part != piece(got, len(part)):
            fail("wrong at", got)
        got += len(part)
    thread.join()
    if got != sent[0]:
        fail("only", got, "of", sent[0])
    return got


def many(dice, limit):
    count = 0
    while not os.path.exists(stop):
        try:
            connection = socket.create_connection(to)
        except OSError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            time.sleep(0.01)
            continue
        with connection:
            count += one(connection, dice, limit)
    totals.append(count)


threads = [
    threading.Thread(target=many, args=(random.Random(seed + number), limit)) for number, limit in enumerate(LIMITS)
]
for thread in threads:
    thread.start()
print("begun", flush=True)
for thread in threads:
    thread.join()
if len(totals) != len(threads):
    fail("a thread has failed")
print("all", sum(totals), flush=True)
