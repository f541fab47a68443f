"""A call: its request, and the outcome of the tool. docs/workers.md explains each step.

The tool is read-only: a call that is delivered twice may run twice, so there is no journal.
"""

import json
import re
import time

import query_table as tool
import wire
from wire import error

DAY = 86_400
ID, ADDRESS = re.compile(r"[!-~]{1,200}"), re.compile(r"tool\.result(\.[A-Za-z0-9_%~-]+){2}")
UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


def read_cancel(body):
    """Returns the id in a cancel; raises one of `UNREADABLE` if that is not possible."""
    return ID.fullmatch(json.loads(body)["toolCallId"])[0]


class Call:
    """A request, from its delivery to its reply."""

    def __init__(self, properties, tag):
        self.id, self.tool, self.arguments, self.tags = properties.correlation_id, "", "", [tag]
        self.reply_to, self.headers = properties.reply_to or "tool.result", properties.headers or {}
        self.progress_key = self.reply_to.replace("result", "progress", 1)
        self.started, self.reports = time.monotonic(), 0

    def may_reply(self, user):
        """Returns whether reply-to is an address for tool results, and not that of another caller."""
        kind, _, name = (user or "").rpartition(".")
        is_caller = name == "cli" or kind.endswith(".agent")
        is_address = self.reply_to == "tool.result" or ADDRESS.fullmatch(self.reply_to)
        return is_address and (not is_caller or self.reply_to.split(".")[2:3] in ([], [name]))

    def read(self, properties, body):
        """Reads the request; raises one of `UNREADABLE` if that is not possible."""
        if int(self.headers.get("rb-wire", 1)) > 1 or len(body) > wire.MAX_BODY:
            raise ValueError("expected wire version 1 and at most 4 MiB")
        if (properties.type or "").rpartition(".")[2] != "ToolInvokeRequest":
            raise ValueError("expected a ToolInvokeRequest")
        fields = json.loads(body)
        call_id, name, arguments = fields["toolCallId"], fields["toolName"], fields["arguments"]
        if not (ID.fullmatch(call_id) and ID.fullmatch(name) and isinstance(arguments, str)):
            raise ValueError("expected toolCallId and toolName of at most 200 characters, and a text as arguments")
        self.id, self.tool, self.arguments = self.id or call_id, name, arguments
        deadline = self.headers.get("rb-deadline")
        by_clock = DAY if deadline is None else int(deadline) / 1000 - time.time()
        self.until = self.started + min(int(self.headers.get("rb-timeout-ms", 60_000)) / 1000, by_clock, DAY)

    def is_copy_of(self, other):
        return (self.tool, self.arguments, self.reply_to) == (other.tool, other.arguments, other.reply_to)

    def run(self, is_cancelled):
        """Runs the tool, and returns its outcome. `is_cancelled` is called many times per second."""

        def stop_code():
            return "cancelled" if is_cancelled() else "timeout" if time.monotonic() >= self.until else None

        if code := stop_code():
            return error(code, "no", "the call did not start")
        if self.tool != tool.REGISTRATION["name"]:
            return error("tool_not_found", "no", "this pool has no such tool")
        try:
            tool.validate(arguments := json.loads(self.arguments))
        except UNREADABLE as problem:
            return error("invalid_arguments", "no", f"invalid arguments: {problem}")
        text, failed = tool.run(arguments, lambda: stop_code() is not None)
        if code := stop_code():
            return error(code, "yes", "the query was stopped")
        return "ToolInvokeResponse", {"content": text, "isError": failed}

    def next_progress(self):
        """Returns progress twice per second, and `None` in between."""
        if self.progress_key == "tool.progress" or time.monotonic() < self.started + 0.5 * (self.reports + 1):
            return None  # the key of no particular caller, or too early
        self.reports += 1
        return {"sequence": self.reports, "text": "running"}
