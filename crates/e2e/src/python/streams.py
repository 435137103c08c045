"""Echo by asyncio streams.

    server ADDRESS PORT
    client ADDRESS PORT BYTES CONNECTIONS
"""
import asyncio
import os
import socket
import sys


async def serve_one(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(address, port):
    sock = socket.create_server((address, port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    async with await asyncio.start_server(serve_one, sock=sock) as server:
        await server.serve_forever()


async def ask(address, port, count):
    reader, writer = await asyncio.open_connection(address, port)
    sent = os.urandom(count)

    async def send():
        for at in range(0, count, 100_000):
            writer.write(sent[at:at + 100_000])
            await writer.drain()
        writer.write_eof()

    _, got = await asyncio.gather(send(), reader.read())
    assert got == sent, f"{len(sent)} bytes were sent, {len(got)} others came"
    writer.close()
    await writer.wait_closed()


async def client(address, port, count, connections):
    await asyncio.gather(*(ask(address, port, count) for _ in range(connections)))


if sys.argv[1] == "server":
    asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
else:
    asyncio.run(asyncio.wait_for(client(sys.argv[2], *map(int, sys.argv[3:6])), 45))
