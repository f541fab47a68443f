"""An MCP server whose definitions are unusable, outdated or hostile, except for one.

With a number as its argument, it lists definitions that do not follow the protocol, and one that does.
"""

import json
import sys

HIDDEN = "\x1b[31mre\u200bd\u202e"

EXPLODING = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {
    **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(30)},
    "d30": {"type": "string"}}}

SCHEMAS = {
    "good": {"type": "object"},
    "exploding": EXPLODING,
    "external": {"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}},
    "old": {"type": "object", "$schema": "https://example.com/own", "properties": {
        "n": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "required": True}}},
    "nested": {"type": "object", "properties": {"x": {"$ref": "#/$defs/d"}}, "$defs": {"d": {
        "anyOf": [{"properties": {"x": {"$ref": "#/$defs/d"}}, "required": ["y"]}] * 3}}},
}

DEEP = {"type": "string"}
for _ in range(70):
    DEEP = {"type": "object", "properties": {"x": DEEP}}

UNREADABLE = [
    {"name": "missing"},
    {"name": "null", "inputSchema": None},
    {"name": "boolean", "inputSchema": True},
    {"name": 5, "inputSchema": {"type": "object"}},
    {"name": "huge", "inputSchema": {"type": "object", "properties": {"n": {"maximum": 10**400}}}},
    {"name": "deep", "inputSchema": DEEP},
]

LISTS = [
    # Each definition alone, and all of them.
    *([definition] for definition in UNREADABLE), UNREADABLE]

for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if identity is None:
        continue
    reply = {"jsonrpc": "2.0", "id": identity}
    if method == "initialize":
        reply["result"] = {"protocolVersion": message["params"]["protocolVersion"],
                           "capabilities": {"tools": {}},
                           "serverInfo": {"name": "definitions", "version": "1"}}
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": schema} for name, schema in SCHEMAS.items()]
        if sys.argv[1:]:
            tools = tools[:1] + LISTS[int(sys.argv[1])]
        reply["result"] = {"tools": tools}
    elif method == "tools/call":
        reply["result"] = {"content": [
            {"type": "text", "text": HIDDEN},
            {"type": "resource", "resource": {"uri": "x:" + HIDDEN, "text": HIDDEN}}]}
    else:
        reply["error"] = {"code": -32601, "message": "unknown"}
    print(json.dumps(reply), flush=True)
