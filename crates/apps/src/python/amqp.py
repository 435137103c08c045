"""A client of RabbitMQ (pika).

    amqp.py check ADDRESS PORT                 confirmed messages of many sizes, in order, from one connection to another
    amqp.py rate ADDRESS PORT SECONDS small    messages of 100 B to a queue and back, 100 under way

`rate` prints one line of JSON: what was counted, and in how many seconds.
"""

import json
import os
import sys
import time

import pika

UNDER_WAY = 100


def connected(address, port):
    """A connection, once the broker lets one in."""
    parameters = pika.ConnectionParameters(address, int(port), blocked_connection_timeout=30, socket_timeout=20)
    return pika.BlockingConnection(parameters)


def check(address, port):
    """Compares what comes back; returns how many bytes were published."""
    to, of = connected(address, port), connected(address, port)
    sender, receiver = to.channel(), of.channel()
    sender.queue_declare("check")
    sender.confirm_delivery()
    sizes = [0, 1, 131_071, 131_072, 1_000_003, 20_000_000] + list(range(100, 20_000, 100))
    bodies = [os.urandom(size) for size in sizes]
    for body in bodies:
        sender.basic_publish("", "check", body)
    for number, (method, _, body) in enumerate(receiver.consume("check", inactivity_timeout=30)):
        assert method, f"message {number} did not come"
        assert body == bodies[number], f"message {number} is another"
        receiver.basic_ack(method.delivery_tag)
        if number + 1 == len(bodies):
            break
    receiver.cancel()
    assert sender.queue_declare("check", passive=True).method.message_count == 0
    to.close()
    of.close()
    return sum(sizes)


def rate(address, port, seconds):
    """Counts messages that went to the broker and came back."""
    connection = connected(address, port)
    channel = connection.channel()
    channel.queue_declare("rate", auto_delete=True)
    sent, done = os.urandom(100), 0

    def took(_channel, _method, _properties, body):
        nonlocal done
        assert body == sent
        done += 1
        channel.basic_publish("", "rate", sent)

    channel.basic_consume("rate", took, auto_ack=True)
    for _ in range(UNDER_WAY):
        channel.basic_publish("", "rate", sent)
    connection.process_data_events(0.1)
    begin, before = time.monotonic(), done
    while time.monotonic() < begin + seconds:
        connection.process_data_events(0.05)
    result = {"count": done - before, "seconds": time.monotonic() - begin}
    channel.close()
    connection.close()
    return result


def main(kind, address, port, *rest):
    """See above."""
    if kind == "check":
        print(check(address, port))
    else:
        print(json.dumps(rate(address, port, float(rest[0]))))


main(*sys.argv[1:])
