"""Calls the tool list_files of a fleet at a steady rate until its standard input ends.

    python constant_rate_calls.py AMQP_URL CALLS_PER_SECOND

The URL is that of the user <namespace>.cli. Speaks the wire of docs/messaging.md by itself, so that
what it measures is the fleet. Says "ready" when the first call was answered, and at the end how many
were made, how many failed and how long they took. Exit code 1 when one failed or was not answered.
"""

import asyncio
import json
import sys
import time
import uuid
from urllib.parse import urlsplit

import aio_pika

# No call may take longer, also while handlers are replaced.
DEADLINE_SECONDS = 30


class Calls:
    def __init__(self, user):
        self.user = user
        self.namespace = user.removesuffix(".cli")
        self.asker = f"tool.result.cli.{uuid.uuid4().hex}"
        self.waiting = {}
        self.seconds = []
        self.failures = []
        self.handlers = set()
        self.first = asyncio.Event()

    async def listen(self, channel):
        self.exchange = await channel.get_exchange(self.namespace, ensure=False)
        queue = await channel.declare_queue(
            f"{self.namespace}.{self.asker}", durable=True, arguments={"x-expires": 600000}
        )
        await queue.bind(self.exchange, self.asker)
        await queue.consume(self.answered)

    async def answered(self, message):
        await message.ack()
        begun = self.waiting.pop(message.correlation_id, None)
        if begun is None:
            return
        body = json.loads(message.body)
        self.seconds.append(time.monotonic() - begun)
        self.handlers.add(message.headers.get("rb-source"))
        if message.type != "ToolInvokeResponse" or body.get("isError"):
            self.failures.append(f"{message.type}: {body}")
        self.first.set()

    async def call(self):
        call = uuid.uuid4().hex
        request = {"toolCallId": call, "toolName": "list_files", "arguments": "{}",
                   "sessionId": self.asker}
        now = int(time.time())
        headers = {
            "rb-source": "cli",
            "rb-wire": 1,
            "rb-timeout-ms": DEADLINE_SECONDS * 1000,
            "rb-deadline": (now + DEADLINE_SECONDS) * 1000,
            "rb-content-trust": "tool-request",
        }
        message = aio_pika.Message(
            json.dumps(request).encode(), headers=headers, message_id=uuid.uuid4().hex,
            type="ToolInvokeRequest", correlation_id=call, reply_to=self.asker, user_id=self.user,
            timestamp=now, content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        self.waiting[call] = time.monotonic()
        try:
            await self.exchange.publish(message, "tool.invoke", mandatory=True, timeout=DEADLINE_SECONDS)
        except Exception as error:  # whatever it is, the call failed
            self.waiting.pop(call, None)
            self.failures.append(f"not published: {error!r}")


async def until_input_ends():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def main(url, rate):
    connection = await aio_pika.connect(url)
    calls = Calls(urlsplit(url).username)
    await calls.listen(await connection.channel(publisher_confirms=True))
    ended = asyncio.create_task(until_input_ends())
    await calls.call()
    await asyncio.wait_for(calls.first.wait(), DEADLINE_SECONDS)
    print("ready", flush=True)
    begun, made, publishing = time.monotonic(), 0, set()
    while not ended.done():
        while made < (time.monotonic() - begun) * rate:
            made += 1
            task = asyncio.create_task(calls.call())
            publishing.add(task)
            task.add_done_callback(publishing.discard)
        await asyncio.wait([ended], timeout=0.005)
    lasted = time.monotonic() - begun
    last = time.monotonic() + DEADLINE_SECONDS
    while (publishing or calls.waiting) and time.monotonic() < last:
        await asyncio.sleep(0.05)
    failed = len(calls.failures) + len(calls.waiting)
    times = sorted(calls.seconds)
    middle, most = times[len(times) // 2], times[-1]
    print(f"{made} calls in {lasted:.0f} s by {len(calls.handlers)} handlers, {failed} failed; "
          f"median {1000 * middle:.0f} ms, longest {1000 * most:.0f} ms")
    for failure in calls.failures[:5]:
        print(failure[:500])
    await connection.close()
    return 1 if failed or not made else 0


sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]))))
