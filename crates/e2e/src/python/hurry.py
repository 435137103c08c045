"""Connections that must not wait: ADDRESS PORT TIMES.

Says how long the longest `connect` took that returned before the connection was made, `pending after N ms`; then, when
they are made, echoes over each of them, and says `done`.
"""
import errno
import select
import socket
import sys
import time

address, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connections, longest = [], 0.0
for _ in range(times):
    connection = socket.socket()
    connection.setblocking(False)
    start = time.monotonic()
    outcome = connection.connect_ex((address, port))
    longest = max(longest, time.monotonic() - start)
    assert outcome == errno.EINPROGRESS, errno.errorcode.get(outcome, outcome)
    connections.append(connection)
print(f"pending after {round(longest * 1000)} ms", flush=True)
for number, connection in enumerate(connections):
    _, ready, _ = select.select([], [connection], [], 30)
    assert ready, "not connected"
    failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert failed == 0, errno.errorcode.get(failed, failed)
    connection.setblocking(True)
    sent = bytes([number]) * 100_000
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)
    got = b""
    while data := connection.recv(1 << 16):
        got += data
    assert got == sent, f"{len(got)} bytes"
print("done", flush=True)
