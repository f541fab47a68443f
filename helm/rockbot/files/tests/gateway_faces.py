"""Calls each face of a gateway once.

Arguments: the URL of the gateway, an agent, the file of a token, and the faces. The token has all of them and the
right to talk with the agent. Without the file, the faces must refuse the request. The variable GATEWAY_HOST replaces
the header Host. With PROXY_HEADERS, the gateway signs people in by the headers of a proxy. It must refuse a request
without them; one with them must be `refused` or `accepted`, as the value of the variable.
"""

import json
import os
import sys
import urllib.error
import urllib.request
import uuid

# A turn calls a model.
TIMEOUT_SECONDS = 120
MCP_VERSION = "2025-11-25"

base, agent, token_file, *faces = sys.argv[1:]
token = None
if os.path.exists(token_file):
    with open(token_file, encoding="utf-8") as file:
        token = file.read().strip()
    if not token:
        sys.exit("the file of the token is empty")


def request(path, body=None, headers=None, method=None, has_token=True):
    """Returns the status, the headers and the text of a response."""
    sent = dict(headers or {})
    if host := os.environ.get("GATEWAY_HOST"):
        sent["host"] = host
    if token and has_token:
        sent["authorization"] = f"Bearer {token}"
    if body is not None:
        sent.setdefault("content-type", "application/json")
        body = json.dumps(body).encode()
    call = urllib.request.Request(base + path, body, sent, method=method)
    try:
        with urllib.request.urlopen(call, timeout=TIMEOUT_SECONDS) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def expect(what, condition, text):
    if not condition:
        sys.exit(f"{what}: unexpected response: {text[:1000]}")


def console():
    status, headers, text = request("/")
    is_page = headers.get_content_type() == "text/html"
    expect("console", status == 200 and is_page, f"{status} {text}")


def openai():
    status, _, text = request("/v1/models")
    models = [model["id"] for model in json.loads(text)["data"]] if status == 200 else []
    expect("openai models", agent in models, f"{status} {text}")
    message = {"role": "user", "content": "Reply with one word."}
    status, _, text = request("/v1/chat/completions", {"model": agent, "messages": [message]})
    expect("openai", status == 200, f"{status} {text}")
    expect("openai", json.loads(text)["choices"][0]["message"]["content"], text)


def a2a():
    path = f"/agents/{agent}"
    headers = {"a2a-version": "1.0"}
    status, _, text = request(f"{path}/.well-known/agent-card.json", headers=headers)
    expect("a2a card", status == 200 and json.loads(text)["name"], f"{status} {text}")
    parts = [{"text": "Reply with one word."}]
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    status, _, text = request(path, call, headers)
    expect("a2a", status == 200, f"{status} {text}")
    task = json.loads(text).get("result", {}).get("task", {})
    expect("a2a", task.get("status", {}).get("state") == "TASK_STATE_COMPLETED", text)


def mcp_message(text):
    """Returns the message of a response, which may be one of server-sent events."""
    data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    messages = [json.loads(line) for line in data or [text] if line.strip()]
    return messages[-1]


def mcp():
    headers = {"accept": "application/json, text/event-stream"}
    client = {"name": "helm-test", "version": "1"}
    params = {"protocolVersion": MCP_VERSION, "capabilities": {}, "clientInfo": client}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    status, sent, text = request("/mcp", call, headers)
    expect("mcp", status == 200, f"{status} {text}")
    headers["mcp-protocol-version"] = mcp_message(text)["result"]["protocolVersion"]
    headers["mcp-session-id"] = sent["mcp-session-id"]
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    status, _, text = request("/mcp", initialized, headers)
    expect("mcp", status == 202, f"{status} {text}")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    status, _, text = request("/mcp", call, headers)
    expect("mcp", status == 200, f"{status} {text}")
    expect("mcp", mcp_message(text)["result"]["tools"], text)
    request("/mcp", headers=headers, method="DELETE")


def refused(path):
    status, _, text = request(path)
    expect(f"{path} without a token", status == 401, f"{status} {text}")


def proxy_headers(state):
    person = {"x-forwarded-email": "helm-test@example.com", "x-forwarded-groups": "helm-test"}
    for headers, expected in [({}, 401), (person, 200 if state == "accepted" else 401)]:
        status, _, text = request("/api/v1/me", headers=headers, has_token=False)
        what = f"sign-in with the headers {list(headers)}"
        expect(what, status == expected, f"{status} instead of {expected}: {text}")
    print(f"proxy: headers are {state}, and required")


calls = {"console": console, "openai": openai, "a2a": a2a, "mcp": mcp}
protected = {
    "openai": "/v1/models",
    "a2a": f"/agents/{agent}/.well-known/agent-card.json",
    "mcp": "/mcp",
}
for face in faces:
    if token or face == "console":
        calls[face]()
        print(f"{face}: called")
    else:
        refused(protected[face])
        print(f"{face}: refuses requests without a token")
if state := os.environ.get("PROXY_HEADERS"):
    proxy_headers(state)
