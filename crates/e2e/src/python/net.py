"""IP between hosts: TCP both ways at once, large datagrams, groups, hosts that are not there."""

import hashlib
import os
import socket
import struct
import sys
import threading
import time

PATIENCE = 30
END = 0xFFFFFFFF


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def both_ways(s, count):
    """Sends and receives `count` bytes at once; both ends tell each other what they got."""
    s.settimeout(PATIENCE)
    sent, got = hashlib.sha256(), hashlib.sha256()

    def send():
        left = count
        while left:
            block = os.urandom(min(left, 1 << 20))
            sent.update(block)
            s.sendall(block)
            left -= len(block)

    sender = threading.Thread(target=send)
    sender.start()
    left = count
    while left:
        block = s.recv(min(left, 1 << 20))
        assert block, f"end of stream, {left} bytes are missing"
        got.update(block)
        left -= len(block)
    sender.join()
    s.sendall(got.digest())
    theirs = b""
    while len(theirs) < 32:
        block = s.recv(32 - len(theirs))
        assert block, "end of stream in the digest"
        theirs += block
    assert theirs == sent.digest(), "what arrived there is not what was sent"


def tcp_server(address, port, count):
    listener = socket.create_server((address, int(port)), family=family(address))
    connection, _ = listener.accept()
    both_ways(connection, int(count))


def tcp_client(address, port, count):
    s = socket.create_connection((address, int(port)), PATIENCE)
    print("begins", flush=True)
    both_ways(s, int(count))
    print("whole")


def udp_server(address, port):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.bind((address, int(port)))
    print("ready", flush=True)
    while True:
        datagram, peer = s.recvfrom(1 << 16)
        s.sendto(datagram, peer)


def udp_client(address, port, size, times):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.settimeout(PATIENCE)
    s.connect((address, int(port)))
    for _ in range(int(times)):
        datagram = os.urandom(int(size))
        s.send(datagram)
        assert s.recv(1 << 16) == datagram, "another datagram came back"
    print("whole")


def hear(group, port):
    """Counts numbered datagrams of a group, and says what came more or less often than once."""
    s = socket.socket(family(group), socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.settimeout(PATIENCE)
    index = socket.if_nametoindex("xl0")
    if ":" in group:
        s.bind(("::", int(port)))
        member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
    else:
        s.bind(("", int(port)))
        if 224 <= int(group.split(".")[0]) < 240:
            member = socket.inet_aton(group) + struct.pack("@Ii", 0, index)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    print("ready", flush=True)
    counts, wanted = {}, None
    while wanted is None or s.gettimeout() == 0.5:
        try:
            datagram = s.recv(1 << 16)
        except TimeoutError:
            assert wanted is not None, "nobody was heard to the end"
            break
        number, total = struct.unpack_from("!II", datagram)
        if number == END:
            # Copies that come late would come now.
            wanted = total
            s.settimeout(0.5)
            continue
        assert datagram[8:] == bytes([number % 251]) * (len(datagram) - 8), "other bytes"
        counts[number] = counts.get(number, 0) + 1
    wrong = {number: counts.get(number, 0) for number in range(wanted) if counts.get(number) != 1}
    assert not wrong and len(counts) == wanted, f"not once: {wrong}"
    print("each once")


def say(group, port, times, size):
    s = socket.socket(family(group), socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if ":" in group:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("xl0"))
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    else:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    for number in range(int(times)):
        body = bytes([number % 251]) * (int(size) - 8)
        s.sendto(struct.pack("!II", number, int(times)) + body, (group, int(port)))
        time.sleep(0.001)
    s.sendto(struct.pack("!II", END, int(times)), (group, int(port)))


def absent(address):
    """Connects to a host that is out of reach."""
    s = socket.socket(family(address))
    s.settimeout(PATIENCE)
    try:
        s.connect((address, 80))
    except OSError as error:
        print(os.strerror(error.errno) if error.errno else repr(error))


COMMANDS = {
    "tcp-server": tcp_server,
    "tcp-client": tcp_client,
    "udp-server": udp_server,
    "udp-client": udp_client,
    "hear": hear,
    "say": say,
    "absent": absent,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
