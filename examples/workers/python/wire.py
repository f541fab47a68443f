"""Names and formats on the bus that a worker needs. docs/workers.md describes them."""

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
WORK = {"x-queue-type": "quorum", "x-max-length": 100_000, "x-max-length-bytes": 256 << 20, "x-delivery-limit": 4,
        "x-overflow": "reject-publish", "x-dead-letter-exchange": DEAD_LETTERS, "x-dead-letter-routing-key": QUEUE,
        "x-dead-letter-strategy": "at-least-once"}
LETTERS = {"x-queue-type": "quorum", "x-max-length": 10_000, "x-max-length-bytes": 512 << 20,
           "x-delivery-limit": 1_000_000, "x-message-ttl": 604_800_000}
CALL_FIELDS = ("toolCallId", "toolName", "arguments")
MAX_BODY, DAY = 4 << 20, 86_400


def error(code, executed, message):
    return "ToolError", {"code": code, "executed": executed, "message": message, "isRetryable": code == "timeout"}


def remaining(headers, default):
    """Returns the seconds left: the smaller of the time budget and the time until the deadline."""
    deadline = headers.get("rb-deadline")
    by_clock = DAY if deadline is None else int(deadline) / 1000 - time.time()
    return min(int(headers.get("rb-timeout-ms", default * 1000)) / 1000, by_clock, DAY)


def may_reply(user, reply_to):
    """Returns whether `reply_to` is an address for tool results, and not that of another caller."""
    (kind, _, name), segments = (user or "").rpartition("."), reply_to.split(".")
    is_caller = name == "cli" or kind.endswith(".agent")
    return segments[:2] == ["tool", "result"] and not (is_caller and segments[2:3] not in ([], [name]))


def read(properties, headers, body):
    """Returns id, tool and arguments of a request; raises `ValueError` if it cannot be read."""
    if int(headers.get("rb-wire", 1)) > 1:
        raise ValueError("wire versions over 1 are not supported")
    if (properties.type or "").rpartition(".")[2] != "ToolInvokeRequest" or len(body) > MAX_BODY:
        raise ValueError("expected a ToolInvokeRequest of at most 4 MiB")
    request = json.loads(body)
    if not isinstance(request, dict) or not all(isinstance(request.get(name), str) for name in CALL_FIELDS):
        raise ValueError("expected the texts toolCallId, toolName and arguments")
    return [request[name] for name in CALL_FIELDS]


def properties(user, kind, call, persistent):
    """Returns the properties of a message: about a call, or an announcement without one."""
    trust, trace = ("tool-output", call.trace) if call else ("system", {})
    headers = {"rb-wire": 1, "rb-source": f"{SERVICE}/{INSTANCE}", "rb-content-trust": trust, **trace}
    return pika.BasicProperties(
        message_id=uuid.uuid4().hex,
        type=kind,
        correlation_id=call and call.id,
        user_id=user,
        timestamp=int(time.time()),
        content_type="application/json",
        delivery_mode=2 if persistent else 1,
        headers=headers,
    )
