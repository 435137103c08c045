"""One way, in large sends from memory of xl_alloc, which the far program may fetch; every byte is checked.

    server ADDRESS PORT               prints of each connection `flowing`, then `came BYTES SHA256 FETCHED NAME`
    client ADDRESS PORT HOW FILE      sends until FILE appears; prints `flowing`, then `sent BYTES SHA256 FETCHED NAME`

HOW is `asked` (read-zcopy by setsockopt) or `told` (by rules, or not at all). FETCHED: bytes by Read Zcopy; NAME: `eof`, or
an errno's name.
"""
import ctypes
import errno
import hashlib
import os
import random
import socket
import struct
import sys
import threading

SOL_CROSSLANE, XL_TRANSFER, XL_STATS, READ_ZCOPY = 0x584C, 2, 4, 2
TX_FETCHED, RX_FETCHED = 3, 13  # words of struct xl_stats
PIECE = 4 << 20
BLOCK = random.Random(1).randbytes(PIECE)
FLOWING = 10 * PIECE


def allot():
    """Memory that far programs can map."""
    library = ctypes.CDLL(None)
    library.xl_alloc.restype = ctypes.c_void_p
    address = library.xl_alloc(ctypes.c_size_t(PIECE), 0)
    if not address:
        raise MemoryError("xl_alloc")
    return memoryview((ctypes.c_ubyte * PIECE).from_address(address)).cast("B")


def fill(piece, number):
    """What piece `number` of every stream here is."""
    piece[:] = BLOCK
    piece[:8] = struct.pack("=Q", number)


def fetched(connection, word):
    try:
        stats = connection.getsockopt(SOL_CROSSLANE, XL_STATS, 184)
    except OSError:
        return -1  # no stream, or no more
    return struct.unpack_from("=Q", stats, 8 * word)[0]


def name(error):
    return errno.errorcode.get(error.errno, str(error))


def take(connection):
    total, digest, ended, told = 0, hashlib.sha256(), "eof", False
    piece, target = bytearray(PIECE), bytearray(PIECE)
    try:
        while True:
            fill(piece, total // PIECE)
            got = 0
            while got < PIECE:
                count = connection.recv_into(memoryview(target)[got:])
                if count == 0:
                    break
                got += count
            digest.update(memoryview(target)[:got])
            if target[:got] != piece[:got]:
                print(f"wrong bytes in piece {total // PIECE}", flush=True)
            total += got
            if total >= FLOWING and not told:
                print("flowing", flush=True)
                told = True
            if got < PIECE:
                break
    except OSError as error:
        ended = name(error)
    print("came", total, digest.hexdigest(), fetched(connection, RX_FETCHED), ended, flush=True)


def give(connection, stop):
    total, digest, ended = 0, hashlib.sha256(), "eof"
    piece = allot()
    try:
        while not os.path.exists(stop):
            fill(piece, total // PIECE)
            digest.update(piece)
            connection.sendall(piece)
            # It is ours again: what the far program still fetched from here would be wrong.
            piece[:] = b"\xee" * PIECE
            total += PIECE
            if total == FLOWING:
                print("flowing", flush=True)
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        ended = name(error)
    print("sent", total, digest.hexdigest(), fetched(connection, TX_FETCHED), ended, flush=True)


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "client":
        how, stop = sys.argv[4], sys.argv[5]
        connection = socket.create_connection((address, port), timeout=20)
        connection.settimeout(None)
        if how == "asked":
            connection.setsockopt(SOL_CROSSLANE, XL_TRANSFER, READ_ZCOPY)
        give(connection, stop)
        return
    listener = socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=take, args=(connection,), daemon=True).start()


main()
