"""A server over standard input and output that can do everything wrong, one tool for each."""

import json
import os
import subprocess
import sys
import threading
import time

out = sys.stdout.buffer
lock = threading.Lock()
extra = []


def say(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def raw(line):
    with lock:
        out.write(line)
        out.flush()


def text(identity, words, **more):
    say({"id": identity, "result": {"content": [{"type": "text", "text": words}], **more}})


def tool(name):
    return {"name": name, "description": "does " + name, "inputSchema": {"type": "object"}}


TOOLS = "echo env fail refuse die garbage huge half wrong slow progress silent storm grow child ask pid"


def call(identity, params):
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "echo":
        text(identity, json.dumps(arguments, sort_keys=True))
    elif name == "env":
        text(identity, json.dumps(dict(os.environ)))
    elif name == "pid":
        text(identity, str(os.getpid()))
    elif name == "fail":
        text(identity, "it did not work", isError=True)
    elif name == "refuse":
        say({"id": identity, "error": {"code": -32602, "message": "no such thing"}})
    elif name == "die":
        os._exit(3)
    elif name == "garbage":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{]\n' % identity)
    elif name == "huge":
        # One line without an end in sight, after its id.
        with lock:
            out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % identity)
            for _ in range(int(arguments["megabytes"])):
                out.write(b"x" * 1_000_000)
            out.write(b'"}]}}\n')
            out.flush()
    elif name == "half":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"con' % identity)
        os._exit(0)
    elif name == "wrong":
        text(identity + 1_000_000, "for somebody else")
        text(identity, "for you")
    elif name == "slow":
        time.sleep(float(arguments.get("seconds", 30)))
        text(identity, "done")
    elif name == "progress":
        for step in range(int(arguments.get("steps", 5))):
            params = {"progressToken": token, "progress": step, "total": 5, "message": "step"}
            say({"method": "notifications/progress", "params": params})
            time.sleep(float(arguments.get("pause", 0.05)))
        text(identity, "done")
    elif name == "silent":
        pass
    elif name == "storm":
        for _ in range(100):
            say({"method": "notifications/tools/list_changed"})
        text(identity, "stormed")
    elif name == "grow":
        extra.append(tool("grown%d" % len(extra)))
        say({"method": "notifications/tools/list_changed"})
        text(identity, "grown")
    elif name == "child":
        child = subprocess.Popen(["sleep", "600"])
        text(identity, str(child.pid))
    elif name == "ask":
        # Noted before it is asked: the answer can be here at once.
        waiting["q"] = identity
        say({"id": "q", "method": "elicitation/create", "params": {
            "message": "really?", "requestedSchema": {"type": "object", "properties": {}}}})
    else:
        say({"id": identity, "error": {"code": -32601, "message": "unknown tool"}})


waiting = {}
listed = 0
counted = 0
print("a server complains \x1b[31m on standard error", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        say({"id": identity, "result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
            "instructions": "Does everything wrong. Use with care."}})
    elif method == "tools/list" and "mute" in sys.argv:
        say({"id": identity, "error": {"code": -32603, "message": "not today"}})
    elif method == "tools/list":
        listed += 1
        tools = [tool(name) for name in TOOLS.split()] + extra
        tools.append({**tool("listed"), "description": "listed %d times" % listed})
        tools.append({**tool("count"), "annotations": {"readOnlyHint": True}})
        say({"id": identity, "result": {"tools": tools}})
    elif method == "tools/call" and params.get("name") == "listed":
        text(identity, str(listed))
    elif method == "tools/call" and params.get("name") == "count":
        counted += 1
        text(identity, str(counted))
    elif method == "tools/call":
        threading.Thread(target=call, args=(identity, params), daemon=True).start()
    elif method == "notifications/cancelled":
        with open(os.environ.get("CANCELS", os.devnull), "a") as file:
            file.write("%s\n" % params.get("requestId"))
    elif method == "ping":
        say({"id": identity, "result": {}})
    elif method is None and identity in waiting:
        text(waiting.pop(identity), json.dumps(message.get("result") or message.get("error")))
    elif identity is not None:
        say({"id": identity, "error": {"code": -32601, "message": "unknown method"}})
