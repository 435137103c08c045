"""One connection after the other from ports that others may share, each an echo, checked byte by byte.

    ADDRESS SERVER PORT FIRST COUNT SECONDS       begins at port FIRST of ADDRESS, COUNT ports in turn
"""
import itertools
import socket
import struct
import sys
import time

# The servers of these tests take this as a wish for an echo of messages of this many bytes.
ECHO, MESSAGE = b"e", 64
RESET = struct.pack("ii", 1, 0)


def message(number):
    return (b"victim %08d " % number * MESSAGE)[:MESSAGE]


def exchange(local, remote, number):
    """Whether there was a connection: another may have these two addresses just now.

    Resets are counted by themselves: one now and then may be by packets of an earlier connection of the same addresses, which
    the kernel's TCP has as well; many are a server that got another's bytes, and closed with ours unread.
    """
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        s.settimeout(5)
        try:
            s.bind(local)
            s.connect(remote)
        except OSError:
            return False
        s.sendall(ECHO + message(number))
        got = b""
        while len(got) < MESSAGE:
            part = s.recv(MESSAGE - len(got))
            if not part:
                break
            got += part
        if got != message(number):
            raise ValueError(f"instead of an echo: {got!r}")
    return True


def main(address, server, port, first, count, seconds):
    end = time.monotonic() + float(seconds)
    served = harmed = reset = 0
    for number in itertools.count():
        if time.monotonic() > end:
            break
        try:
            local = (address, int(first) + number % int(count))
            served += exchange(local, (server, int(port)), number)
        except ConnectionResetError:
            reset += 1
        except (OSError, ValueError) as error:
            harmed += 1
            print(f"connection {number}: {error}", flush=True)
        time.sleep(0.004)
    print(f"served {served}, reset {reset}, harmed {harmed} end", flush=True)


main(*sys.argv[1:])
