"""An MCP server over standard input and output whose resources change when its tool is called."""

import json
import sys

subscribed = set()


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        send({"id": request_id, "result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {"subscribe": True}},
            "serverInfo": {"name": "watched", "version": "1"}}})
    elif method == "tools/list":
        tool = {"name": "touch", "inputSchema": {"type": "object"}}
        send({"id": request_id, "result": {"tools": [tool]}})
    elif method == "resources/read":
        content = {"uri": params["uri"], "text": "text"}
        send({"id": request_id, "result": {"contents": [content]}})
    elif method == "resources/subscribe":
        subscribed.add(params["uri"])
        send({"id": request_id, "result": {}})
    elif method == "tools/call":
        for uri in params["arguments"]["uris"]:
            # Also for resources without a subscription, as some servers do.
            changed = {"method": "notifications/resources/updated", "params": {"uri": uri}}
            send(changed)
            send(changed)
        text = json.dumps(sorted(subscribed))
        send({"id": request_id, "result": {"content": [{"type": "text", "text": text}]}})
    elif request_id is not None:
        send({"id": request_id, "error": {"code": -32601, "message": "unknown method"}})
