"""An MCP server over standard input and output with one tool for each fault."""

import json
import os
import subprocess
import sys
import threading
import time

out = sys.stdout.buffer
lock = threading.Lock()
extra = []


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def write(line):
    with lock:
        out.write(line)
        out.flush()


def reply(request_id, text, **fields):
    send({"id": request_id, "result": {"content": [{"type": "text", "text": text}], **fields}})


def tool(name):
    return {"name": name, "description": "the tool " + name, "inputSchema": {"type": "object"}}


TOOLS = "echo env fail refuse die garbage huge half wrong slow progress silent storm grow child elicit pid"


def call(request_id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "echo":
        reply(request_id, json.dumps(arguments, sort_keys=True))
    elif name == "env":
        reply(request_id, json.dumps(dict(os.environ)))
    elif name == "pid":
        reply(request_id, str(os.getpid()))
    elif name == "fail":
        reply(request_id, "it did not work", isError=True)
    elif name == "refuse":
        send({"id": request_id, "error": {"code": -32602, "message": "no such thing"}})
    elif name == "die":
        os._exit(3)
    elif name == "garbage":
        write(b'{"jsonrpc":"2.0","id":%d,"result":{]\n' % request_id)
    elif name == "huge":
        # The id comes first, in a very long line.
        with lock:
            out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request_id)
            for _ in range(int(arguments["megabytes"])):
                out.write(b"x" * 1_000_000)
            out.write(b'"}]}}\n')
            out.flush()
    elif name == "half":
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"con' % request_id)
        os._exit(0)
    elif name == "wrong":
        reply(request_id + 1_000_000, "for another request")
        reply(request_id, "for this request")
    elif name == "slow":
        time.sleep(float(arguments.get("seconds", 30)))
        reply(request_id, "done")
    elif name == "progress":
        for step in range(int(arguments.get("steps", 5))):
            params = {"progressToken": token, "progress": step, "total": 5, "message": "step"}
            send({"method": "notifications/progress", "params": params})
            time.sleep(float(arguments.get("pause", 0.05)))
        reply(request_id, "done")
    elif name == "silent":
        pass
    elif name == "storm":
        for _ in range(100):
            send({"method": "notifications/tools/list_changed"})
        reply(request_id, "done")
    elif name == "grow":
        extra.append(tool("grown%d" % len(extra)))
        send({"method": "notifications/tools/list_changed"})
        reply(request_id, "grown")
    elif name == "child":
        child = subprocess.Popen(["sleep", "600"])
        reply(request_id, str(child.pid))
    elif name == "elicit":
        # Recorded first: the response may arrive at once.
        elicitations["q"] = request_id
        send({"id": "q", "method": "elicitation/create", "params": {
            "message": "Continue?", "requestedSchema": {"type": "object", "properties": {}}}})
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "unknown tool"}})


elicitations = {}
listed = 0
counted = 0
print("an error \x1b[31m on standard error", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        send({"id": request_id, "result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
            "instructions": "Does everything wrong. Use with care."}})
    elif method == "tools/list" and "mute" in sys.argv:
        send({"id": request_id, "error": {"code": -32603, "message": "unavailable"}})
    elif method == "tools/list":
        listed += 1
        tools = [tool(name) for name in TOOLS.split()] + extra
        tools.append({**tool("listed"), "description": "listed %d times" % listed})
        tools.append(tool("count"))
        send({"id": request_id, "result": {"tools": tools}})
    elif method == "tools/call" and params.get("name") == "listed":
        reply(request_id, str(listed))
    elif method == "tools/call" and params.get("name") == "count":
        counted += 1
        reply(request_id, str(counted))
    elif method == "tools/call":
        threading.Thread(target=call, args=(request_id, params), daemon=True).start()
    elif method == "notifications/cancelled":
        with open(os.environ.get("CANCELS", os.devnull), "a") as file:
            file.write("%s\n" % params.get("requestId"))
    elif method == "ping":
        send({"id": request_id, "result": {}})
    elif method is None and request_id in elicitations:
        reply(elicitations.pop(request_id), json.dumps(message.get("result") or message.get("error")))
    elif request_id is not None:
        send({"id": request_id, "error": {"code": -32601, "message": "unknown method"}})
