"""Names and formats on the bus that a worker needs. docs/workers.md describes them."""

import json
import os
import re
import time
import uuid

import pika

URL = os.environ.get("ROCKBOT_BUS__URL", "amqp://guest:guest@127.0.0.1:5672/%2f")
NAMESPACE = os.environ.get("ROCKBOT_BUS__NAMESPACE", "rockbot")
POOL = os.environ.get("ROCKBOT_HANDLER__POOL", "tables")
KEY, SERVICE, INSTANCE = f"tool.invoke.pool.{POOL}", f"{POOL}-worker", uuid.uuid4().hex
QUEUE, DEAD_LETTERS = f"{NAMESPACE}.{KEY}", f"{NAMESPACE}.dlx"
WORK_QUEUE = {
    "x-queue-type": "quorum",
    "x-max-length": 100_000,
    "x-max-length-bytes": 256 << 20,
    "x-delivery-limit": 9,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": DEAD_LETTERS,
    "x-dead-letter-routing-key": QUEUE,
    "x-dead-letter-strategy": "at-least-once",
}
DEAD_LETTER_QUEUE = {
    "x-queue-type": "quorum",
    "x-max-length": 10_000,
    "x-max-length-bytes": 512 << 20,
    "x-delivery-limit": 1_000_000,
    "x-message-ttl": 604_800_000,
}
CONSUMER_TIMEOUT = {"x-consumer-timeout": 90_000_000}
MAX_BODY, DAY = 4 << 20, 86_400
ID, ADDRESS = re.compile(r"[!-~]{1,200}"), re.compile(r"tool\.result(\.[A-Za-z0-9_%~-]+){2}")
TRACE_LIMITS = {"traceparent": 200, "tracestate": 512}


def declare(channel, user, topics):
    """Declares the work queue, and a queue for each topic, and returns the names of the latter."""
    if not user.startswith(f"{NAMESPACE}."):  # the definitions of a fleet's users contain these
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


def error(code, executed, message):
    payload = {"code": code, "executed": executed, "message": message, "isRetryable": code == "timeout"}
    return "ToolError", payload


def remaining(headers, default):
    """Returns the seconds left: the smaller of the time budget and the time until the deadline."""
    deadline = headers.get("rb-deadline")
    by_clock = DAY if deadline is None else int(deadline) / 1000 - time.time()
    return min(int(headers.get("rb-timeout-ms", default * 1000)) / 1000, by_clock, DAY)


def trace(headers):
    """Returns the headers of the trace, without those that are invalid."""
    found = {name: headers.get(name) for name in TRACE_LIMITS}
    return {name: text for name, text in found.items() if isinstance(text, str) and len(text) <= TRACE_LIMITS[name]}


def may_reply(user, reply_to):
    """Returns whether `reply_to` is an address for tool results, and not that of another caller."""
    if reply_to != "tool.result" and not ADDRESS.fullmatch(reply_to):
        return False
    kind, _, name = (user or "").rpartition(".")
    is_caller = name == "cli" or kind.endswith(".agent")
    return not is_caller or reply_to.split(".")[2:3] in ([], [name])


def read(properties, headers, body):
    """Returns id, tool and arguments of a request; raises `ValueError` if it cannot be read."""
    if int(headers.get("rb-wire", 1)) > 1:
        raise ValueError("wire versions over 1 are not supported")
    if (properties.type or "").rpartition(".")[2] != "ToolInvokeRequest" or len(body) > MAX_BODY:
        raise ValueError("expected a ToolInvokeRequest of at most 4 MiB")
    request = json.loads(body)
    if not isinstance(request, dict):
        raise ValueError("expected an object")
    call_id, name, arguments = (request.get(field) for field in ("toolCallId", "toolName", "arguments"))
    if not all(isinstance(text, str) and ID.fullmatch(text) for text in (call_id, name)):
        raise ValueError("expected toolCallId and toolName, of at most 200 characters")
    if not isinstance(arguments, str):
        raise ValueError("expected arguments as a text")
    return call_id, name, arguments


def properties(user, kind, call, persistent):
    """Returns the properties of a message: about a call, or an announcement without one."""
    headers = {"rb-wire": 1, "rb-source": f"{SERVICE}/{INSTANCE}"}
    headers["rb-content-trust"] = "tool-output" if call else "system"
    return pika.BasicProperties(
        message_id=uuid.uuid4().hex,
        type=kind,
        correlation_id=call and call.id,
        user_id=user,
        timestamp=int(time.time()),
        content_type="application/json",
        delivery_mode=2 if persistent else 1,
        headers={**headers, **(call.trace if call else {})},
    )
