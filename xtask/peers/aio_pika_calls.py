"""Measures calls/s and p50 of requests and replies with aio-pika, with the server in another process.

    python aio_pika_calls.py AMQP_URL

The guarantees are those of RockBot: publisher confirms and `mandatory` for requests and replies, a
quorum queue for requests, persistent messages, an ack after the confirmed reply.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
import uuid

import aio_pika

QUEUE = "bench.aio-pika.requests"


async def serve(url):
    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=256)
    queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})

    async def handle(message):
        request = json.loads(message.body)
        body = json.dumps({"content": json.loads(request["arguments"])["text"]}).encode()
        reply = aio_pika.Message(body, correlation_id=message.correlation_id,
                                 delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(reply, routing_key=message.reply_to, mandatory=True)
        await message.ack()

    await queue.consume(handle)
    print("ready", flush=True)
    await asyncio.Future()


async def call_all(url):
    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    replies = await channel.declare_queue(f"bench.aio-pika.{uuid.uuid4().hex}", durable=True,
                                          arguments={"x-expires": 600000})
    pending = {}

    async def on_reply(message):
        await message.ack()
        pending.pop(message.correlation_id).set_result(message.body)

    await replies.consume(on_reply)
    body = json.dumps({"toolName": "echo", "arguments": json.dumps({"text": "hello"})}).encode()

    async def call():
        correlation_id = uuid.uuid4().hex
        future = pending[correlation_id] = asyncio.get_running_loop().create_future()
        request = aio_pika.Message(body, correlation_id=correlation_id, reply_to=replies.name,
                                   delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(request, routing_key=QUEUE, mandatory=True)
        assert json.loads(await future)["content"] == "hello"

    async def loop(until, times):
        while time.perf_counter() < until:
            start = time.perf_counter()
            await call()
            times.append(time.perf_counter() - start)

    await call()
    print("| in flight | aio-pika calls/s | p50 |\n|---:|---:|---:|")
    for in_flight in (1, 16, 256):
        times, began = [], time.perf_counter()
        await asyncio.gather(*(loop(began + 3.0, times) for _ in range(in_flight)))
        per_second = len(times) / (time.perf_counter() - began)
        print(f"| {in_flight} | {per_second:.0f} | {statistics.median(times) * 1000:.2f} ms |", flush=True)
    await replies.delete(if_unused=False, if_empty=False)
    await connection.close()


def main():
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
        return
    server = subprocess.Popen([sys.executable, __file__, "serve", sys.argv[1]], stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline().strip() == b"ready"
        asyncio.run(call_all(sys.argv[1]))
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main()
