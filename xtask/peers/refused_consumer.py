"""Tries to receive the requests of a handler pool whose user is another one.

    python refused_consumer.py AMQP_URL ROUTING_KEY

The user is that of a handler. The exit code is 0 if the broker refuses all of it, and 1 if something is
permitted.
"""

import asyncio
import sys
from urllib.parse import urlsplit

import aio_pika
import aiormq


async def refused(connection, what, attempt):
    """Returns whether the broker refuses an attempt, on a channel of its own, which it closes."""
    channel = await connection.channel()
    try:
        await attempt(channel)
    except aiormq.exceptions.ChannelAccessRefused:
        return True
    print(f"permitted: {what}")
    return False


async def main(url, key):
    namespace = urlsplit(url).username.partition(".")[0]
    queue = f"{namespace}.{key}"

    async def consume(channel):
        other = await channel.get_queue(queue, ensure=False)
        await other.consume(lambda message: None)

    async def get(channel):
        other = await channel.get_queue(queue, ensure=False)
        await other.get(fail=False)

    async def bind(channel):
        exchange = await channel.get_exchange(namespace, ensure=False)
        own = await channel.get_queue(own_queue, ensure=False)
        await own.bind(exchange, key)

    connection = await aio_pika.connect(url)
    own_queue = f"{namespace}.tool.cancel.check"
    await (await connection.channel()).declare_queue(own_queue, exclusive=True)
    attempts = {"consume": consume, "get": get, "bind": bind}
    results = [await refused(connection, what, attempt) for what, attempt in attempts.items()]
    await connection.close()
    return 0 if all(results) else 1


sys.exit(asyncio.run(main(*sys.argv[1:])))
