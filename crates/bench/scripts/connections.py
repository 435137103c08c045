"""Short connections and idle ones, by nothing but the socket module.

serve PORT               answers each byte with itself, on many connections at once
loop ADDRESS PORT TIMES  connects, sends a byte, waits for it, closes; prints times in a second
hold ADDRESS PORT COUNT  opens connections, uses each once, prints "ready", and keeps them until it is ended
"""
import selectors
import socket
import sys
import time


def serve(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=512)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ)
                continue
            connection = key.fileobj
            try:
                data = connection.recv(4096)
                connection.sendall(data)
            except ConnectionError:
                data = b""
            if not data:
                selector.unregister(connection)
                connection.close()


def exchange(connection):
    connection.sendall(b"x")
    if connection.recv(1) != b"x":
        sys.exit("the answer is missing")


def loop(address, port, times):
    start = time.monotonic()
    for _ in range(times):
        with socket.create_connection((address, port)) as connection:
            exchange(connection)
    print(times / (time.monotonic() - start))


def hold(address, port, count):
    connections = [socket.create_connection((address, port)) for _ in range(count)]
    for connection in connections:
        exchange(connection)
    print("ready", flush=True)
    connections[0].recv(1)


command, *words = sys.argv[1:]
if command == "serve":
    serve(int(words[0]))
elif command == "loop":
    loop(words[0], int(words[1]), int(words[2]))
else:
    hold(words[0], int(words[1]), int(words[2]))
