"""An MCP server over standard input and output that starts in an unusual way, named by its argument.

plain    returns an error for every unknown method
result   returns an empty result for every unknown method
ends     ends once it has listed its tools
exits    exits when it receives an unknown method
broken   writes to standard error and exits
late     replies once the file exists that its second argument names
"""

import json
import os
import sys
import time

mode = sys.argv[1]


def send(request_id, **reply):
    print(json.dumps({"jsonrpc": "2.0", "id": request_id, **reply}), flush=True)


if mode == "broken":
    print("Traceback (most recent call last):", file=sys.stderr)
    sys.exit("ModuleNotFoundError: No module named 'clock'")
while mode == "late" and not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, request_id = message.get("method"), message["id"]
    if method == "initialize":
        send(request_id, result={
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "startup", "version": "1"}})
    elif method == "tools/list":
        schemas = {"now": {"type": "object"}, "unusable": {"type": 7}}
        tools = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
        task = {"execution": {"taskSupport": "required"}}
        tools.append({"name": "task", "inputSchema": {"type": "object"}, **task})
        send(request_id, result={"tools": tools})
        if mode == "ends":
            sys.exit()
    elif method == "tools/call":
        send(request_id, result={"content": [{"type": "text", "text": "noon"}]})
    elif mode == "result" or method == "ping":
        send(request_id, result={})
    elif mode == "exits":
        sys.exit("unknown method " + method)
    else:
        send(request_id, error={"code": -32601, "message": "unknown method"})
