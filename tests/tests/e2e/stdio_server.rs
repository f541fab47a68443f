//! An MCP server with given tools, which return fixed results.

use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Its first argument is a list of definitions, or `@` and the name of a file with one. Each may have a `result`; without
/// it the tool returns its name.
const PROGRAM: &str = r#"
import json, sys
given = sys.argv[1]
tools = json.load(open(given[1:])) if given.startswith("@") else json.loads(given)
named = lambda name: {"content": [{"type": "text", "text": name}]}
results = {tool["name"]: tool.pop("result", named(tool["name"])) for tool in tools}
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if "id" not in message:
        continue
    if method == "initialize":
        reply = {"result": {"protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}}
    elif method == "tools/list":
        reply = {"result": {"tools": tools}}
    elif method == "tools/call":
        reply = {"result": results[message["params"]["name"]]}
    else:
        reply = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": identity, **reply}), flush=True)
"#;

/// Returns the entry of a server in a servers file. `results` has the result of each of its tools, which claim to be
/// read-only.
pub(crate) fn entry(results: &Value) -> Value {
    entry_with_description(results, "A tool of a test.")
}

/// Returns the entry of a server whose tools have this description.
pub(crate) fn entry_with_description(results: &Value, description: &str) -> Value {
    let results = results.as_object().expect("an object");
    let tools = results.iter().map(|(name, result)| {
        json!({"name": name, "description": description, "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true}, "result": result})
    });
    let tools = tools.collect::<Value>().to_string();
    json!({"command": "python3", "args": ["-c", PROGRAM, tools], "exposure": "eager"})
}

/// Returns the entry of a server with these definitions, which can be too long for an argument.
pub(crate) fn entry_with_tools(fleet: &Fleet, tools: &[Value]) -> Value {
    let file = fleet.write("tools.json", &json!(tools).to_string());
    let file = format!("@{}", file.display());
    json!({"command": "python3", "args": ["-c", PROGRAM, file]})
}

/// Returns the result with a text.
pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
