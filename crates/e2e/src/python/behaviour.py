"""Behaviours of sockets that programs rely on, each checked against what TCP would do.

    server ADDRESS PORT
    client ADDRESS PORT
"""
import array
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

TIMEOUT = 20


def serve_one(connection):
    """The first line says what to do."""
    with connection:
        lines = connection.makefile("rb", buffering=0)
        what = lines.readline().strip().decode()
        SERVE[what](connection)


def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)


def reset(connection):
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def close_at_once(connection):
    connection.sendall(b"last words" * 1000)


def half(connection):
    connection.sendall(b"no more from me")
    connection.shutdown(socket.SHUT_WR)
    got = b""
    while data := connection.recv(65536):
        got += data
    assert got == b"y" * 300_000, len(got)


def child(connection):
    """Passes the connection to a program by inheritance."""
    connection.set_inheritable(True)
    code = f"import socket; s = socket.socket(fileno={connection.fileno()}); s.sendall(s.recv(100) + b' from child')"
    subprocess.run([sys.executable, "-c", code], close_fds=False, check=True, timeout=TIMEOUT)


def forked(connection):
    if pid := os.fork():
        connection.close()
        os.waitpid(pid, 0)
    else:
        connection.sendall(connection.recv(100) + b" from fork")
        connection.close()
        os._exit(0)


SERVE = {"echo": echo, "reset": reset, "close": close_at_once, "half": half, "child": child, "forked": forked}


def serve(address, port):
    listener = socket.create_server((address, port), family=socket.AF_INET6, backlog=64, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def connect(what):
    connection = socket.create_connection(PEER, timeout=TIMEOUT)
    connection.sendall(what.encode() + b"\n")
    return connection


def all_of(connection):
    got = b""
    while data := connection.recv(65536):
        got += data
    return got


def test_half_close_either_way():
    with connect("half") as c:
        assert all_of(c) == b"no more from me"
        c.sendall(b"y" * 300_000)
        c.shutdown(socket.SHUT_WR)
        try:
            c.send(b"z")
            assert False, "sent after shutdown"
        except BrokenPipeError:
            pass


def test_what_was_sent_before_close_comes():
    with connect("close") as c:
        time.sleep(0)
        assert all_of(c) == b"last words" * 1000


def test_linger_0_is_a_reset():
    with connect("reset") as c:
        c.sendall(b"go")
        try:
            while c.recv(100):
                pass
            assert False, "end of file instead of a reset"
        except ConnectionResetError:
            pass


def test_nonblocking_says_so():
    with connect("echo") as c:
        c.setblocking(False)
        try:
            c.recv(1)
            assert False, "received out of nothing"
        except BlockingIOError:
            pass
        sent = 0
        try:
            while True:
                sent += c.send(b"w" * 65536)
        except BlockingIOError:
            pass
        got = 0
        while got < sent:
            assert select.select([c], [], [], TIMEOUT)[0]
            got += len(c.recv(1 << 20))
        assert got == sent


def test_peek_waitall_and_dontwait():
    with connect("echo") as c:
        c.sendall(b"0123456789")
        while len(c.recv(10, socket.MSG_PEEK)) < 10:
            pass
        assert c.recv(4, socket.MSG_PEEK) == b"0123"
        c.settimeout(None)
        assert c.recv(10, socket.MSG_WAITALL) == b"0123456789"
        try:
            c.recv(1, socket.MSG_DONTWAIT)
            assert False
        except BlockingIOError:
            pass


def test_fionread_counts():
    with connect("echo") as c:
        c.sendall(b"12345")
        assert select.select([c], [], [], TIMEOUT)[0]
        count = array.array("i", [0])
        deadline = time.monotonic() + TIMEOUT
        while count[0] < 5 and time.monotonic() < deadline:
            fcntl.ioctl(c, termios.FIONREAD, count)
        assert count[0] == 5
        assert c.recv(100) == b"12345"


def test_scatter_and_gather():
    with connect("echo") as c:
        assert c.sendmsg([b"ab", b"", b"cdef"]) == 6
        first, second = bytearray(2), bytearray(100)
        got = 0
        while got < 6:
            count = c.recvmsg_into([memoryview(first)[got:], memoryview(second)[max(0, got - 2):]])[0]
            got += count
        assert bytes(first) + bytes(second[:4]) == b"abcdef"


def test_dup_shares_the_stream():
    c = connect("echo")
    c.settimeout(None)
    other = c.dup()
    c.close()
    other.sendall(b"still here")
    assert other.recv(100) == b"still here"
    os.dup2(other.fileno(), 200)
    other.close()
    os.write(200, b"and here")
    assert os.read(200, 100) == b"and here"
    os.close(200)


def test_epoll_edge_and_level():
    with connect("echo") as c, select.epoll() as e:
        c.setblocking(False)
        e.register(c, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        assert e.poll(TIMEOUT)[0][1] & select.EPOLLOUT
        assert e.poll(0) == []
        for number in range(50):
            c.send(b"%d" % number)
            # An edge of the other direction may come before.
            while not (events := e.poll(TIMEOUT)) or not events[0][1] & select.EPOLLIN:
                assert events, "no edge came"
            c.recv(100)
        e.modify(c, select.EPOLLIN)
        assert e.poll(0) == []
        c.send(b"level")
        assert e.poll(TIMEOUT) == [(c.fileno(), select.EPOLLIN)]
        assert e.poll(TIMEOUT) == [(c.fileno(), select.EPOLLIN)]
        assert c.recv(100) == b"level"
        c.shutdown(socket.SHUT_WR)
        e.modify(c, select.EPOLLIN | select.EPOLLRDHUP)
        events = e.poll(TIMEOUT)
        assert events and events[0][1] & select.EPOLLRDHUP, events


def test_kernel_descriptors_beside():
    reader, writer = os.pipe()
    with connect("echo") as c:
        p = select.poll()
        p.register(c, select.POLLIN)
        p.register(reader, select.POLLIN)
        assert p.poll(20) == []
        os.write(writer, b"x")
        assert p.poll(TIMEOUT * 1000) == [(reader, select.POLLIN)]
        c.sendall(b"y")
        deadline = time.monotonic() + TIMEOUT
        while len(found := p.poll(TIMEOUT * 1000)) < 2 and time.monotonic() < deadline:
            pass
        assert sorted(found) == sorted([(reader, select.POLLIN), (c.fileno(), select.POLLIN)]), found
    os.close(reader)
    os.close(writer)


def test_timeout_is_kept():
    with connect("echo") as c:
        c.settimeout(0.05)
        begin = time.monotonic()
        try:
            c.recv(1)
            assert False
        except TimeoutError:
            assert time.monotonic() - begin >= 0.04
    with connect("echo") as c:
        c.settimeout(None)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        try:
            c.recv(1)
            assert False
        except BlockingIOError:
            pass


def test_addresses_are_true():
    with connect("echo") as c:
        assert c.getpeername()[:2] == PEER, c.getpeername()
        assert c.getsockname()[0] not in ("0.0.0.0", "::", "127.0.0.1") or PEER[0] == "127.0.0.1"
        assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_a_closed_port_refuses():
    try:
        socket.create_connection((PEER[0], 19), timeout=TIMEOUT)
        assert False
    except ConnectionRefusedError:
        pass
    c = socket.socket(socket.AF_INET6 if ":" in PEER[0] else socket.AF_INET)
    c.setblocking(False)
    assert c.connect_ex((PEER[0], 19)) in (errno.EINPROGRESS, errno.ECONNREFUSED)
    select.select([], [c], [], TIMEOUT)
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (errno.ECONNREFUSED, 0)
    c.close()


def test_nonblocking_connect():
    c = socket.socket(socket.AF_INET6 if ":" in PEER[0] else socket.AF_INET)
    c.setblocking(False)
    assert c.connect_ex(PEER) in (0, errno.EINPROGRESS)
    assert select.select([], [c], [], TIMEOUT)[1]
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    c.send(b"echo\n")
    c.send(b"hello")
    assert select.select([c], [], [], TIMEOUT)[0]
    assert c.recv(10) == b"hello"
    c.close()


def test_close_wakes_nobody_else():
    """A thread blocked in recv sees the shutdown of another."""
    with connect("echo") as c:
        c.settimeout(None)
        result = []
        thread = threading.Thread(target=lambda: result.append(c.recv(10)))
        thread.start()
        time.sleep(0.02)
        c.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)
        assert result == [b""], result


def test_sendfile_and_file_objects():
    import tempfile
    data = os.urandom(700_000)
    with connect("echo") as c, tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        sender = threading.Thread(target=lambda: (c.sendfile(f), c.shutdown(socket.SHUT_WR)))
        sender.start()
        with c.makefile("rb") as lines:
            assert lines.read() == data
        sender.join(TIMEOUT)


def test_inherited_by_a_program():
    with connect("child") as c:
        c.sendall(b"hello")
        assert all_of(c) == b"hello from child"


def test_used_by_a_fork():
    with connect("forked") as c:
        c.sendall(b"hello")
        assert all_of(c) == b"hello from fork"


def test_urgent_data_is_not_ignored():
    with connect("echo") as c:
        c.sendall(b"before")
        got = b""
        while len(got) < 6:
            got += c.recv(100)
        c.send(b"!", socket.MSG_OOB)
        c.sendall(b"after")
        got = b""
        while len(got) < 5:
            got += c.recv(100)
        assert got.replace(b"!", b"") == b"after", got


def test_fdopen():
    c = connect("echo")
    c.settimeout(None)
    fd = c.detach()
    with os.fdopen(fd, "r+b", buffering=0) as f:
        f.write(b"line\n")
        assert f.read(5) == b"line\n"


PEER = (sys.argv[2], int(sys.argv[3]))
if sys.argv[1] == "server":
    serve(*PEER)
only = sys.argv[4:]
failed = 0
for name, test in list(globals().items()):
    if name.startswith("test_") and (not only or name in only):
        try:
            test()
        except BaseException:
            failed += 1
            import traceback
            print("FAILED", name, file=sys.stderr)
            traceback.print_exc()
sys.exit(1 if failed else 0)
