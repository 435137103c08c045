"""Echo by socketserver, that forks or makes a thread for each connection.

    forking|threading ADDRESS PORT
"""
import socketserver
import sys


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.wfile.write(data)


class Forking(socketserver.ForkingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64


class Threading(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


kind = {"forking": Forking, "threading": Threading}[sys.argv[1]]
with kind((sys.argv[2], int(sys.argv[3])), Echo) as server:
    server.serve_forever()
