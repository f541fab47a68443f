"""Names, queues and messages on the bus. docs/workers.md describes them."""

import json
import os
import time
import uuid

import pika

URL = os.environ.get("ROCKBOT_BUS__URL", "amqp://guest:guest@127.0.0.1:5672/%2f")
NAMESPACE = os.environ.get("ROCKBOT_BUS__NAMESPACE", "rockbot")
POOL = os.environ.get("ROCKBOT_HANDLER__POOL", "tables")
KEY, SERVICE, INSTANCE = f"tool.invoke.pool.{POOL}", f"{POOL}-worker", uuid.uuid4().hex
QUEUE, DEAD_LETTERS = f"{NAMESPACE}.{KEY}", f"{NAMESPACE}.dlx"
WORK_QUEUE = {
    "x-queue-type": "quorum", "x-max-length": 100_000, "x-max-length-bytes": 256 << 20,
    "x-delivery-limit": 29, "x-overflow": "reject-publish", "x-dead-letter-exchange": DEAD_LETTERS,
    "x-dead-letter-routing-key": QUEUE, "x-dead-letter-strategy": "at-least-once",
}
DEAD_LETTER_QUEUE = {
    "x-queue-type": "quorum", "x-max-length": 10_000, "x-max-length-bytes": 512 << 20,
    "x-delivery-limit": 1_000_000, "x-message-ttl": 604_800_000,
}
CONSUMER_TIMEOUT = {"x-consumer-timeout": 90_000_000}
MAX_BODY = 4 << 20


def declare(channel, user, topics):
    """Declares the work queue, and a queue for each topic, and returns the names of the latter."""
    if not user.startswith(f"{NAMESPACE}."):  # a fleet's users may not declare these, which exist there
        channel.exchange_declare(NAMESPACE, "topic", durable=True)
        channel.exchange_declare(DEAD_LETTERS, "direct", durable=True)
        channel.queue_declare(f"{QUEUE}.dlq", durable=True, arguments=DEAD_LETTER_QUEUE)
        channel.queue_bind(f"{QUEUE}.dlq", DEAD_LETTERS, QUEUE)
    channel.queue_declare(QUEUE, durable=True, arguments=WORK_QUEUE)
    channel.queue_bind(QUEUE, NAMESPACE, KEY)
    own = [f"{NAMESPACE}.{topic}.{INSTANCE}" for topic in topics]
    for name, topic in zip(own, topics):
        channel.queue_declare(name, exclusive=True, auto_delete=True, arguments={"x-max-length": 10_000})
        channel.queue_bind(name, NAMESPACE, topic)
    return own


def catalog(tool):
    """Returns an announcement of a tool with its instructions and guides."""
    names = {"handler": SERVICE, "instance": INSTANCE, "invokeKey": KEY, "tools": [tool.REGISTRATION]}
    fingerprint = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(tool.REGISTRATION)).hex
    return {**names, "fingerprint": fingerprint, "instructions": tool.INSTRUCTIONS, "guides": tool.GUIDES}


def withdrawal(tool):
    """Returns an announcement that the worker stops."""
    without = {"tools": [], "removed": [tool.REGISTRATION["name"]], "fingerprint": "none", "guides": []}
    return catalog(tool) | without


def error(code, executed, message):
    return "ToolError", {"code": code, "executed": executed, "message": message, "isRetryable": code == "timeout"}


def encode(kind, payload, call):
    """Returns type and body of a message, and those of an error for a result that is too large."""
    about = {"toolCallId": call.id, "toolName": call.tool} if call else {}
    body = json.dumps({**payload, **about}, ensure_ascii=False).encode(errors="replace")
    if len(body) <= MAX_BODY:
        return kind, body
    return encode(*error("execution_failed", "yes", "the result is too large"), call)


def properties(user, kind, call, is_reply):
    """Returns the properties of a message: about a call, or an announcement without one."""
    headers = {name: text for name in ("traceparent", "tracestate")
               if call and isinstance(text := call.headers.get(name), str) and len(text) <= 512}
    headers |= {"rb-wire": 1, "rb-source": f"{SERVICE}/{INSTANCE}"}
    headers["rb-content-trust"] = "tool-output" if call else "system"
    return pika.BasicProperties(
        message_id=uuid.uuid4().hex, type=kind, correlation_id=call and call.id, user_id=user, headers=headers,
        timestamp=int(time.time()), content_type="application/json", delivery_mode=2 if is_reply else 1,
    )
