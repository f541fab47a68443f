"""Calls a tool of a fleet without arguments at a constant rate until standard input is closed. The rate is lower
while MAX_OPEN calls have no reply yet, so that a slow machine does not fill the queue of the tool.

    python constant_rate_calls.py AMQP_URL CALLS_PER_SECOND TOOL ROUTING_KEY

The URL is that of the user <namespace>.cli. The protocol of docs/messaging.md is implemented here, so
that the fleet is tested independently of RockBot's client. Prints "ready" after the first reply, and
finally the number of calls, failures and handlers, and the durations. The exit code is 1 if a call
failed or got no reply.
"""

import asyncio
import json
import sys
import time
import uuid
from urllib.parse import urlsplit

import aio_pika

# Limit of each call, also while handlers are replaced.
DEADLINE_SECONDS = 30
# Far below the number of calls that may wait for a tool.
MAX_OPEN = 64


class Calls:
    def __init__(self, user, tool, key):
        self.user, self.tool, self.key = user, tool, key
        self.namespace = user.removesuffix(".cli")
        self.reply_to = f"tool.result.cli.{uuid.uuid4().hex}"
        self.pending = {}
        self.seconds = []
        self.failures = []
        self.handlers = set()
        self.first_reply = asyncio.Event()

    async def listen(self, channel):
        self.exchange = await channel.get_exchange(self.namespace, ensure=False)
        queue = await channel.declare_queue(
            f"{self.namespace}.{self.reply_to}", durable=True, arguments={"x-expires": 600000}
        )
        await queue.bind(self.exchange, self.reply_to)
        await queue.consume(self.on_reply)

    async def on_reply(self, message):
        await message.ack()
        started = self.pending.pop(message.correlation_id, None)
        if started is None:
            return
        body = json.loads(message.body)
        self.seconds.append(time.monotonic() - started)
        self.handlers.add(message.headers.get("rb-source"))
        if message.type != "ToolInvokeResponse" or body.get("isError"):
            self.failures.append(f"{message.type}: {body}")
        self.first_reply.set()

    async def call(self):
        call = uuid.uuid4().hex
        request = {"toolCallId": call, "toolName": self.tool, "arguments": "{}",
                   "sessionId": self.reply_to}
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
            type="ToolInvokeRequest", correlation_id=call, reply_to=self.reply_to, user_id=self.user,
            timestamp=now, content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        self.pending[call] = time.monotonic()
        try:
            await self.exchange.publish(message, self.key, mandatory=True, timeout=DEADLINE_SECONDS)
        except Exception as error:
            self.pending.pop(call, None)
            self.failures.append(f"not published: {error!r}")


async def wait_for_end_of_input():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def main(url, rate, tool, key):
    connection = await aio_pika.connect(url)
    calls = Calls(urlsplit(url).username, tool, key)
    await calls.listen(await connection.channel(publisher_confirms=True))
    ended = asyncio.create_task(wait_for_end_of_input())
    await calls.call()
    await asyncio.wait_for(calls.first_reply.wait(), DEADLINE_SECONDS)
    print("ready", flush=True)
    started, count, publishing = time.monotonic(), 0, set()
    next_call = started
    while not ended.done():
        while next_call <= time.monotonic():
            next_call += 1 / rate
            if len(calls.pending) >= MAX_OPEN:
                continue
            count += 1
            task = asyncio.create_task(calls.call())
            publishing.add(task)
            task.add_done_callback(publishing.discard)
        await asyncio.wait([ended], timeout=0.005)
    duration = time.monotonic() - started
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (publishing or calls.pending) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    failed = len(calls.failures) + len(calls.pending)
    times = sorted(calls.seconds)
    median, longest = times[len(times) // 2], times[-1]
    print(f"{count} calls in {duration:.0f} s by {len(calls.handlers)} handlers, {failed} failed; "
          f"median {1000 * median:.0f} ms, longest {1000 * longest:.0f} ms")
    for failure in calls.failures[:5]:
        print(failure[:500])
    await connection.close()
    return 1 if failed or not count else 0


sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])))
