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
UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
draining = threading.Event()


class Worker:
    def __init__(self, connection, user):
        self.connection, self.user = connection, user
        self.requests, self.notices = connection.channel(), connection.channel()
        self.running, self.cancelled, self.threads = {}, {}, ThreadPoolExecutor(CONCURRENCY)
        self.requests.confirm_delivery()
        self.requests.add_on_cancel_callback(lambda _: connection.close())  # the queue was deleted
        cancels, refreshes = wire.declare(self.requests, user, ("tool.cancel", "tool.catalog.refresh"))
        self.requests.basic_consume(cancels, self.on_cancel, auto_ack=True)
        self.requests.basic_consume(refreshes, self.announce, auto_ack=True)
        self.requests.basic_qos(prefetch_count=2 * CONCURRENCY)
        self.consumer = self.requests.basic_consume(QUEUE, self.on_request, arguments=wire.CONSUMER_TIMEOUT)

    def publish(self, channel, key, kind, payload, call=None, mandatory=False):
        body = json.dumps(payload, ensure_ascii=False).encode(errors="replace")
        if len(body) > wire.MAX_BODY:
            kind, failure = error("execution_failed", "yes", "the result is too large")
            body = json.dumps({**failure, "toolCallId": call.id, "toolName": call.name}).encode()
        channel.basic_publish(NAMESPACE, key, body, wire.properties(self.user, kind, call, mandatory), mandatory)

    def announce(self, *_):
        names, is_stopping = [tool.REGISTRATION["name"]], draining.is_set()
        tools = [] if is_stopping else [tool.REGISTRATION]
        catalog = {"handler": wire.SERVICE, "instance": wire.INSTANCE, "invokeKey": KEY, "tools": tools}
        catalog |= {"removed": names if is_stopping else [], "instructions": tool.INSTRUCTIONS, "guides": tool.GUIDES}
        catalog["fingerprint"] = hashlib.sha256(json.dumps(tools).encode()).hexdigest()[:16]
        self.publish(self.notices, "tool.catalog.announce", "ToolCatalog", catalog)
        self.next_heartbeat = time.monotonic() + 10

    def on_cancel(self, _channel, _method, properties, body):
        try:
            call_id, seconds = json.loads(body)["toolCallId"], wire.remaining(properties.headers or {}, 120)
            if not wire.ID.fullmatch(call_id):
                raise ValueError("expected a toolCallId")
        except UNREADABLE:
            return logging.warning("unreadable cancel")
        if call := self.running.get(call_id):
            self.stop(call, "cancelled")
        now = time.monotonic()  # the request, or a copy of it, may still arrive
        self.cancelled = {other: until for other, until in self.cancelled.items() if until > now}
        if len(self.cancelled) < MAX_CANCELS:
            self.cancelled[call_id] = now + seconds

    def on_request(self, channel, method, properties, body):
        headers, reply_to, tag = properties.headers or {}, properties.reply_to or "tool.result", method.delivery_tag
        if not wire.may_reply(properties.user_id, reply_to):
            return channel.basic_reject(tag, requeue=False)
        call = SimpleNamespace(id=properties.correlation_id, name="", reply_to=reply_to, trace=wire.trace(headers),
                               tags=[tag], stopped=None, progress=0, started=time.monotonic())
        try:
            call_id, call.name, call.arguments = wire.read(properties, headers, body)
            call.id, seconds = call.id or call_id, wire.remaining(headers, 60)
        except UNREADABLE as problem:
            return self.finish(call, error("invalid_arguments", "no", f"not a valid request: {problem}"), unreadable=True)
        if other := self.running.get(call.id):
            if (other.name, other.arguments, other.reply_to) == (call.name, call.arguments, reply_to):
                return other.tags.append(tag)  # one reply serves both
            return self.finish(call, error("not_permitted", "no", "another call has this id"))
        if self.cancelled.get(call.id, 0) > time.monotonic():
            return self.finish(call, error("cancelled", "no", "the call was cancelled"))
        if seconds <= 0:
            return self.finish(call, error("timeout", "no", "the deadline has passed"))
        if call.name != tool.REGISTRATION["name"]:
            return self.finish(call, error("tool_not_found", "no", "this pool has no such tool"))
        try:
            tool.validate(arguments := json.loads(call.arguments))
        except UNREADABLE as problem:
            return self.finish(call, error("invalid_arguments", "no", f"invalid arguments: {problem}"))
        self.running[call.id] = call
        call.timer = self.connection.call_later(seconds, partial(self.stop, call, "timeout"))
        call.future = self.threads.submit(self.run, call, arguments)

    def run(self, call, arguments):
        """Runs the tool, in a thread, and returns its outcome to the thread of the connection."""
        later, progress_key = self.connection.add_callback_threadsafe, call.reply_to.replace("result", "progress", 1)

        def is_stopped():
            if time.monotonic() - call.started > 0.5 * (call.progress + 1) and progress_key != "tool.progress":
                call.progress += 1
                progress = {"toolCallId": call.id, "toolName": call.name, "sequence": call.progress, "text": "running"}
                later(partial(self.publish, self.notices, progress_key, "ToolProgress", progress, call))
            return call.stopped is not None

        try:
            text, failed = tool.run(arguments, is_stopped)
            outcome = "ToolInvokeResponse", {"content": text, "isError": failed}
        except Exception:
            logging.exception("the tool crashed")
            outcome = error("execution_failed", "yes", "the tool crashed")
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
                self.consumer = None
                self.announce()
            elif time.monotonic() >= self.next_heartbeat:
                self.announce()
            self.connection.process_data_events(time_limit=0.2)
            if not self.requests.is_open:
                raise pika.exceptions.ChannelWrongStateError("the broker closed the channel")


def main():
    parameters = pika.URLParameters(wire.URL)
    parameters.heartbeat, parameters.blocked_connection_timeout = 10, 60
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: draining.set())
    while not draining.is_set():
        try:
            # When the connection is closed, the broker redelivers what is not settled.
            with pika.BlockingConnection(parameters) as connection:
                Worker(connection, parameters.credentials.username).serve()
        except pika.exceptions.AMQPError as problem:
            logging.warning("no connection: %r; connecting again", problem)
            draining.wait(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("pika").setLevel(logging.ERROR)
    main()
