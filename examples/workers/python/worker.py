"""Serves a handler pool of a RockBot fleet with the tool of query_table.py. docs/workers.md explains each step."""

import logging
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pika
import query_table as tool
import wire
from call import UNREADABLE, Call, read_cancel
from wire import KEY, NAMESPACE, error

CONCURRENCY, MAX_CANCELS, DRAIN_SECONDS = 4, 4096, 25
draining = threading.Event()


class Worker:
    def __init__(self, connection, user):
        self.connection, self.user, self.running, self.cancelled = connection, user, {}, {}
        self.threads = ThreadPoolExecutor(CONCURRENCY)
        self.requests, self.notices = connection.channel(), connection.channel()
        self.requests.confirm_delivery()
        self.requests.add_on_cancel_callback(lambda _: connection.close())  # the queue was deleted
        cancels, refreshes = wire.declare(self.requests, user, ("tool.cancel", "tool.catalog.refresh"))
        self.requests.basic_consume(cancels, self.on_cancel, auto_ack=True)
        self.requests.basic_consume(refreshes, self.announce, auto_ack=True)
        self.requests.basic_qos(prefetch_count=CONCURRENCY)  # so no call waits here for a thread
        self.consumer = self.requests.basic_consume(wire.QUEUE, self.on_request, arguments=wire.CONSUMER_TIMEOUT)
        self.announce()
        logging.info("ready: serving %s", KEY)

    def publish(self, key, kind, payload, call=None, is_reply=False):
        channel = self.requests if is_reply else self.notices  # only replies are confirmed
        kind, body = wire.encode(kind, payload, call)
        channel.basic_publish(NAMESPACE, key, body, wire.properties(self.user, kind, call, is_reply), is_reply)

    def announce(self, *_):
        catalog = wire.withdrawal(tool) if draining.is_set() else wire.catalog(tool)
        self.publish("tool.catalog.announce", "ToolCatalog", catalog)

    def on_cancel(self, _channel, _method, _properties, body):
        try:
            self.cancelled[read_cancel(body)] = True  # also for a call that arrives later
        except UNREADABLE:
            logging.warning("unreadable cancel")
        if len(self.cancelled) > MAX_CANCELS:
            del self.cancelled[next(iter(self.cancelled))]

    def on_request(self, channel, method, properties, body):
        call = Call(properties, method.delivery_tag)
        if not call.may_reply(properties.user_id):
            return channel.basic_reject(method.delivery_tag, requeue=False)
        try:
            call.read(properties, body)
        except UNREADABLE as problem:
            return self.finish(call, error("invalid_arguments", "no", f"invalid request: {problem}"), unreadable=True)
        if other := self.running.get(call.id):
            if call.is_copy_of(other):
                return other.tags.append(method.delivery_tag)  # one reply serves both
            return self.finish(call, error("not_permitted", "no", "another call has this id"))
        self.running[call.id] = call
        self.threads.submit(self.run, call)

    def run(self, call):
        """Runs a call in a thread, and returns its outcome to the thread of the connection."""
        try:
            outcome = call.run(lambda: self.connection.is_closed or call.id in self.cancelled)
        except Exception:
            logging.exception("the tool crashed")
            outcome = error("execution_failed", "yes", "the tool crashed")
        self.connection.add_callback_threadsafe(partial(self.finish, call, outcome))

    def finish(self, call, outcome, unreadable=False):
        """Publishes the reply, and settles the request when the broker has confirmed the reply."""
        if self.running.get(call.id) is call:
            del self.running[call.id]
        try:
            if call.id:
                self.publish(call.reply_to, *outcome, call, is_reply=True)
        except pika.exceptions.UnroutableError:
            logging.warning("reply dropped: the caller's queue is gone")
        for tag in call.tags:
            self.requests.basic_reject(tag, requeue=False) if unreadable else self.requests.basic_ack(tag)

    def serve(self):
        """Serves calls until the connection is lost, or until the process is stopped and idle."""
        next_heartbeat, give_up = time.monotonic() + 10, None
        while give_up is None or (self.running and time.monotonic() < give_up):
            if draining.is_set() and give_up is None:
                self.requests.basic_cancel(self.consumer)
                next_heartbeat, give_up = 0, time.monotonic() + DRAIN_SECONDS
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + 10
                self.announce()
            for call in self.running.values():
                if progress := call.next_progress():
                    self.publish(call.progress_key, "ToolProgress", progress, call)
            self.connection.process_data_events(time_limit=0.2)
            if not self.requests.is_open:
                raise pika.exceptions.ChannelWrongStateError("the broker closed the channel")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    parameters = pika.URLParameters(wire.URL)
    parameters.heartbeat, parameters.blocked_connection_timeout = 10, 60
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: draining.set())
    while not draining.is_set():
        try:
            with pika.BlockingConnection(parameters) as connection:
                Worker(connection, parameters.credentials.username).serve()
        except pika.exceptions.AMQPError as problem:  # the broker redelivers unsettled requests
            logging.warning("no connection: %r; connecting again", problem)
            draining.wait(1)
