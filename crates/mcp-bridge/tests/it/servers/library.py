"""An MCP server with resources, prompts and a tool whose results have a schema."""

import json
import sys

PROMPTS = [
    {"name": "summary", "title": "Summary\u202e of the shelf"},
    {"name": "review", "description": "Reviews a book.", "arguments": [{"name": "title", "required": True}]},
    {"name": "bad\u001b[2J"},
]
if "odd" in sys.argv:
    # Entries that do not follow the protocol, and more prompts than are announced.
    PROMPTS += [{"description": "no name"}, {"name": 7}, "text"]
    PROMPTS += [{"name": f"prompt{number}"} for number in range(60)]
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOLS = [
    {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": COUNT},
    {"name": "link", "inputSchema": {"type": "object"}},
    {"name": "grow", "inputSchema": {"type": "object"}},
]
RESOURCES = [{"uri": f"books://{number}", "name": f"book {number}", "size": 7} for number in range(3)]

TEMPLATES = [{"uriTemplate": "books://{number}", "name": "a book"}]
if "odd" in sys.argv:
    RESOURCES[1] = {"name": "no URI"}
    TEMPLATES.append({"uriTemplate": None, "name": "none"})


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def call(params):
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "count":
        result = text("some books")
        if "count" in arguments:
            result["structuredContent"] = {"count": arguments["count"]}
        return result
    if name == "link":
        return {"content": [{"type": "resource_link", "uri": "books://1", "name": "book 1"}]}
    PROMPTS.append({"name": "new"})
    send({"method": "notifications/prompts/list_changed"})
    return text("grown")


def resources(params):
    start = int((params or {}).get("cursor") or 0)
    page = {"resources": RESOURCES[start : start + 2]}
    if "odd" in sys.argv:
        # The key of the bridge itself.
        page["_meta"] = {"rockbot/leftOut": 2**64 - 1}
    if start + 2 < len(RESOURCES):
        page["nextCursor"] = str(start + 2)
    return page


def read(params):
    uri = params["uri"]
    if uri == "books://cover":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": "aQ=="}]}
    if uri == "books://long":
        return {"contents": [{"uri": uri, "text": "x" * 3_000_000}, {"uri": uri, "text": "end"}]}
    if uri.startswith("books://"):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"text\u202e of {uri}"}]}
    raise LookupError(uri)


def prompt(params):
    arguments = params.get("arguments") or {}
    subject = arguments.get("title", "the shelf")
    message = {"role": "user", "content": {"type": "text", "text": f"Write about {subject}."}}
    return {"messages": [message]}


def respond(method, params):
    if method == "initialize":
        capabilities = {"tools": {}, "resources": {}, "prompts": {"listChanged": True}}
        info = {"name": "library", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params)
    if method == "resources/list":
        return resources(params)
    if method == "resources/templates/list":
        return {"resourceTemplates": TEMPLATES}
    if method == "resources/read":
        return read(params)
    if method == "prompts/list":
        return {"prompts": PROMPTS}
    if method == "prompts/get":
        return prompt(params)
    raise NotImplementedError(method)


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    try:
        send({"id": request["id"], "result": respond(request["method"], request.get("params"))})
    except LookupError as error:
        send({"id": request["id"], "error": {"code": -32002, "message": f"no resource {error}"}})
    except NotImplementedError as error:
        send({"id": request["id"], "error": {"code": -32601, "message": f"no method {error}"}})
