"""multiprocessing over sockets: a Listener and its Client, with authentication, and a Manager.

    server ADDRESS PORT      listens on PORT (connection) and PORT + 1 (manager)
    client ADDRESS PORT
"""
import os
import sys
import threading
from multiprocessing.connection import Client, Listener, wait
from multiprocessing.managers import BaseManager

KEY = b"crosslane"


class Board(dict):
    def add(self, key, value):
        self[key] = self.get(key, 0) + value
        return self[key]


class Manager(BaseManager):
    pass


def serve_connections(address, port):
    with Listener((address, port), backlog=16, authkey=KEY) as listener:
        while True:
            with listener.accept() as connection:
                try:
                    while True:
                        connection.send(connection.recv())
                except EOFError:
                    pass


def serve(address, port):
    threading.Thread(target=serve_connections, args=(address, port), daemon=True).start()
    board = Board()
    Manager.register("board", callable=lambda: board, exposed=("add", "get", "keys"))
    Manager((address, port + 1), authkey=KEY).get_server().serve_forever()


def ask(address, port):
    with Client((address, port), authkey=KEY) as connection:
        for count in (0, 1, 4096, 1 << 20, 16 << 20):
            sent = {"bytes": os.urandom(count), "list": list(range(100))}
            connection.send(sent)
            assert wait([connection], 30) == [connection]
            assert connection.recv() == sent, count
    Manager.register("board", exposed=("add", "get", "keys"))
    manager = Manager((address, port + 1), authkey=KEY)
    manager.connect()
    board = manager.board()
    for number in range(200):
        assert board.add("sum", number) == number * (number + 1) // 2
    assert list(board.keys()) == ["sum"]


(serve if sys.argv[1] == "server" else ask)(sys.argv[2], int(sys.argv[3]))
