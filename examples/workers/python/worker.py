"""Serves a handler pool of a RockBot fleet. docs/workers.md explains each step.

The tool is read-only: a call that is delivered twice may run twice, so the worker keeps no journal.
"""

import hashlib
import json
import logging
import signal
import threading
import time

import pika
import query_table as tool
import wire
from calls import CONCURRENCY, Calls
from wire import KEY, NAMESPACE, QUEUE, error

DRAIN_SECONDS = 25
draining = threading.Event()


class Worker:
    def __init__(self, connection, user):
        self.connection, self.user = connection, user
        self.requests, self.notices = connection.channel(), connection.channel()
        self.calls = Calls(connection, self.requests, self.publish)
        self.requests.confirm_delivery()
        self.requests.add_on_cancel_callback(lambda _: connection.close())  # the queue was deleted
        cancels, refreshes = wire.declare(self.requests, user, ("tool.cancel", "tool.catalog.refresh"))
        self.requests.basic_consume(cancels, self.calls.on_cancel, auto_ack=True)
        self.requests.basic_consume(refreshes, self.announce, auto_ack=True)
        self.requests.basic_qos(prefetch_count=2 * CONCURRENCY)
        self.consumer = self.requests.basic_consume(QUEUE, self.calls.on_request, arguments=wire.CONSUMER_TIMEOUT)

    def publish(self, key, kind, payload, call=None, mandatory=False):
        channel = self.requests if mandatory else self.notices  # replies are confirmed
        body = json.dumps(payload, ensure_ascii=False).encode(errors="replace")
        if len(body) > wire.MAX_BODY:
            kind, failure = error("execution_failed", "yes", "the result is too large")
            body = json.dumps({**failure, "toolCallId": call.id, "toolName": call.name}).encode()
        channel.basic_publish(NAMESPACE, key, body, wire.properties(self.user, kind, call, mandatory), mandatory)

    def announce(self, *_):
        names, is_stopping = [tool.REGISTRATION["name"]], draining.is_set()
        tools = [] if is_stopping else [tool.REGISTRATION]
        catalog = {"handler": wire.SERVICE, "instance": wire.INSTANCE, "invokeKey": KEY, "tools": tools}
        catalog |= {"removed": names if is_stopping else [], "instructions": tool.INSTRUCTIONS}
        catalog["fingerprint"] = hashlib.sha256(json.dumps(tools).encode()).hexdigest()[:16]
        self.publish("tool.catalog.announce", "ToolCatalog", catalog)
        self.next_heartbeat = time.monotonic() + 10

    def serve(self):
        self.announce()
        logging.info("ready: serving %s", KEY)
        while self.consumer or (self.calls.running and time.monotonic() < give_up):
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
