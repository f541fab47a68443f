"""The calls of a worker: from the request to the confirmed reply. docs/workers.md explains each step."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pika
import query_table as tool
import wire
from wire import error

CONCURRENCY, MAX_CANCELS = 4, 4096
UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


class Calls:
    def __init__(self, connection, channel, publish):
        """`channel` is the one of the requests, and `publish` sends a message about a call to a routing key."""
        self.connection, self.channel, self.publish = connection, channel, publish
        self.running, self.cancelled, self.threads = {}, {}, ThreadPoolExecutor(CONCURRENCY)

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
                later(partial(self.publish, progress_key, "ToolProgress", progress, call))
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
                self.publish(call.reply_to, outcome[0], payload, call, mandatory=True)
        except pika.exceptions.UnroutableError:
            logging.warning("reply dropped: the caller's queue is gone")
        except pika.exceptions.NackError:
            return [self.channel.basic_nack(tag, requeue=True) for tag in call.tags]
        for tag in call.tags:
            self.channel.basic_reject(tag, requeue=False) if unreadable else self.channel.basic_ack(tag)
