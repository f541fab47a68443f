"""Serves a handler pool of a RockBot fleet. docs/workers.md explains each step.

The tool is read-only: a call that is delivered twice may run twice, so the worker keeps no journal.
"""

import hashlib
import json
import logging
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pika
import query_table as tool
import wire
from wire import KEY, NAMESPACE, QUEUE, error

CONCURRENCY, MAX_CANCELS, DRAIN_SECONDS = 4, 4096, 25
draining = threading.Event()


class Worker:
    def __init__(self):
        parameters = pika.URLParameters(wire.URL)
        self.user, self.connection = parameters.credentials.username, pika.BlockingConnection(parameters)
        self.requests, self.notices = self.connection.channel(), self.connection.channel()
        self.running, self.cancelled, self.threads = {}, {}, ThreadPoolExecutor(CONCURRENCY)
        self.requests.confirm_delivery()
        if not self.user.startswith(f"{NAMESPACE}."):  # the definitions of a fleet's users contain these
            self.requests.exchange_declare(NAMESPACE, "topic", durable=True)
            self.requests.exchange_declare(wire.DEAD_LETTERS, "direct", durable=True)
            self.requests.queue_declare(f"{QUEUE}.dlq", durable=True, arguments=wire.LETTERS)
            self.requests.queue_bind(f"{QUEUE}.dlq", wire.DEAD_LETTERS, QUEUE)
        for key, receive in {"tool.cancel": self.on_cancel, "tool.catalog.refresh": self.announce}.items():
            own = f"{NAMESPACE}.{key}.{wire.INSTANCE}"
            self.requests.queue_declare(own, exclusive=True, auto_delete=True, arguments={"x-max-length": 10_000})
            self.requests.queue_bind(own, NAMESPACE, key)
            self.requests.basic_consume(own, receive, auto_ack=True)
        self.requests.queue_declare(QUEUE, durable=True, arguments=wire.WORK)
        self.requests.queue_bind(QUEUE, NAMESPACE, KEY)
        self.requests.basic_qos(prefetch_count=2 * CONCURRENCY)
        self.consumer = self.requests.basic_consume(QUEUE, self.on_request, arguments={"x-consumer-timeout": wire.DAY * 1000})

    def publish(self, channel, key, kind, payload, call=None, mandatory=False):
        properties = wire.properties(self.user, kind, call, mandatory)
        channel.basic_publish(NAMESPACE, key, json.dumps(payload).encode(), properties, mandatory)

    def announce(self, *_):
        tools, removed = ([], [tool.REGISTRATION["name"]]) if draining.is_set() else ([tool.REGISTRATION], [])
        fingerprint = hashlib.sha256(json.dumps(tools).encode()).hexdigest()[:16]
        self.publish(self.notices, "tool.catalog.announce", "ToolCatalog", {
            "handler": wire.SERVICE, "instance": wire.INSTANCE, "invokeKey": KEY,
            "tools": tools, "removed": removed, "fingerprint": fingerprint})
        self.next_heartbeat = time.monotonic() + 10

    def on_cancel(self, _channel, _method, properties, body):
        try:
            call_id, seconds = str(json.loads(body)["toolCallId"]), wire.remaining(properties.headers or {}, 120)
        except (ValueError, KeyError, TypeError):
            return logging.warning("unreadable cancel")
        if call_id in self.running:
            self.stop(self.running[call_id], "cancelled")
        now = time.monotonic()  # the request, or a copy of it, may still arrive
        self.cancelled = {call: until for call, until in self.cancelled.items() if until > now}
        if len(self.cancelled) < MAX_CANCELS:
            self.cancelled[call_id] = now + seconds

    def on_request(self, channel, method, properties, body):
        headers, reply_to = properties.headers or {}, properties.reply_to or "tool.result"
        if not wire.may_reply(properties.user_id, reply_to):
            return channel.basic_reject(method.delivery_tag, requeue=False)
        trace = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        call = SimpleNamespace(id=properties.correlation_id, name="", reply_to=reply_to, trace=trace,
                               tags=[method.delivery_tag], stopped=None, progress=0, started=time.monotonic())
        try:
            call_id, call.name, call.arguments = wire.read(properties, headers, body)
            call.id, seconds = call.id or call_id, wire.remaining(headers, 60)
        except (ValueError, TypeError, RecursionError) as problem:
            return self.finish(call, error("invalid_arguments", "no", f"not a valid request: {problem}"), unreadable=True)
        if copy := self.running.get(call.id):
            if (copy.name, copy.arguments, copy.reply_to) == (call.name, call.arguments, reply_to):
                return copy.tags.append(method.delivery_tag)  # one reply serves both
            return self.finish(call, error("not_permitted", "no", "another call has this id"))
        if self.cancelled.get(call.id, 0) > time.monotonic():
            return self.finish(call, error("cancelled", "no", "the call was cancelled"))
        if seconds <= 0:
            return self.finish(call, error("timeout", "no", "the deadline has passed"))
        if call.name != tool.REGISTRATION["name"]:
            return self.finish(call, error("tool_not_found", "no", "this pool has no such tool"))
        try:
            tool.validate(arguments := json.loads(call.arguments))
        except (ValueError, RecursionError) as problem:
            return self.finish(call, error("invalid_arguments", "no", f"invalid arguments: {problem}"))
        self.running[call.id] = call
        call.timer = self.connection.call_later(seconds, partial(self.stop, call, "timeout"))
        call.future = self.threads.submit(self.run, call, arguments)

    def run(self, call, arguments):
        """Runs the tool, in a thread, and returns its outcome to the thread of the connection."""
        def is_stopped():
            if time.monotonic() - call.started > 0.5 * (call.progress + 1):
                call.progress += 1
                payload = {"toolCallId": call.id, "toolName": call.name, "sequence": call.progress, "text": "running the query"}
                key = call.reply_to.replace("tool.result", "tool.progress", 1)
                later(partial(self.publish, self.notices, key, "ToolProgress", payload, call))
            return call.stopped is not None

        later = self.connection.add_callback_threadsafe
        text, failed = tool.run(arguments, is_stopped)
        outcome = "ToolInvokeResponse", {"content": text, "isError": failed}
        if call.stopped:
            outcome = error(call.stopped, "yes", "the query was stopped")
        later(partial(self.finish, call, outcome))

    def stop(self, call, code):
        call.stopped = call.stopped or code
        if call.future.cancel():  # it waits for a thread
            self.finish(call, error(code, "no", "the call did not start"))

    def finish(self, call, outcome, unreadable=False):
        """Publishes the reply, and settles the request when the broker has confirmed the reply."""
        if self.running.get(call.id) is call:
            self.connection.remove_timeout(self.running.pop(call.id).timer)
        try:
            if call.id:
                payload = {"toolCallId": call.id, "toolName": call.name, **outcome[1]}
                self.publish(self.requests, call.reply_to, outcome[0], payload, call, mandatory=True)
        except pika.exceptions.UnroutableError:
            logging.warning("reply dropped: the caller's queue is gone")
        except pika.exceptions.NackError:
            return [self.requests.basic_nack(tag, requeue=True) for tag in call.tags]
        for tag in call.tags:
            self.requests.basic_reject(tag, requeue=False) if unreadable else self.requests.basic_ack(tag)

    def serve(self):
        self.announce()
        logging.info("ready: serving %s", KEY)
        while self.consumer or (self.running and time.monotonic() < give_up):
            if self.consumer and draining.is_set():
                give_up = time.monotonic() + DRAIN_SECONDS
                self.requests.basic_cancel(self.consumer)
                self.announce()
                self.consumer = None
            elif self.consumer and time.monotonic() >= self.next_heartbeat:
                self.announce()
            self.connection.process_data_events(time_limit=0.2)
        self.connection.close()  # the broker redelivers what is not settled


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("pika").setLevel(logging.ERROR)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: draining.set())
    while not draining.is_set():
        try:
            Worker().serve()
        except pika.exceptions.AMQPError as problem:
            logging.warning("no connection: %r; connecting again", problem)
            draining.wait(1)
