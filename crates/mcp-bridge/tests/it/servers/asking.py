"""An MCP server over standard input and output that asks the user for input, in the era of its argument."""

import json
import sys

STATELESS = sys.argv[1] == "stateless"
capabilities = None
# Ids of tool calls by the ids of requests for input.
asked = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def reply(request_id, value):
    text = json.dumps(value, sort_keys=True)
    result = {"content": [{"type": "text", "text": text}]}
    if STATELESS:
        result["resultType"] = "complete"
    send({"id": request_id, "result": result})


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def call(request_id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "declared":
        declared = capabilities
        if STATELESS:
            declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        reply(request_id, sorted((declared.get("elicitation") or {}).keys()))
    elif name == "wait":
        pass
    elif not STATELESS:
        until = arguments.pop("until", None)
        asked["ask-%s" % request_id] = request_id
        send({"id": "ask-%s" % request_id, "method": "elicitation/create", "params": arguments})
        if until:
            # A pipe: ends the call, without an answer, when somebody has written to it.
            open(until).read()
            reply(asked.pop("ask-%s" % request_id), "withdrawn")
    elif "requestState" in params:
        repeated = ("requestState", "inputResponses")
        reply(request_id, {key: params[key] for key in repeated if key in params})
    elif "result" in arguments:
        send({"id": request_id, "result": {
            "resultType": "input_required", **arguments["result"]}})
    elif "inputResponses" in params:
        responses = params["inputResponses"]
        reply(request_id, responses if "also" in responses else responses["q"])
    else:
        requests = {"q": arguments}
        if "also" in arguments:
            requests["also"] = arguments.pop("also")
        requests = {key: {"method": "elicitation/create", "params": request}
                    for key, request in requests.items()}
        send({"id": request_id, "result": {
            "resultType": "input_required", "inputRequests": requests}})


for line in sys.stdin:
    message = json.loads(line)
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "server/discover" and STATELESS:
        send({"id": request_id, "result": {
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}})
    elif method == "initialize" and not STATELESS:
        capabilities = params["capabilities"]
        send({"id": request_id, "result": {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "asking", "version": "1"}}})
    elif method == "tools/list":
        result = {"tools": [tool("ask"), tool("declared"), tool("wait")]}
        if STATELESS:
            result.update({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
        send({"id": request_id, "result": result})
    elif method == "tools/call":
        call(request_id, params)
    elif method is None and request_id in asked:
        reply(asked.pop(request_id), message.get("result") or message.get("error"))
    elif request_id is not None:
        send({"id": request_id, "error": {"code": -32601, "message": "unknown method"}})
