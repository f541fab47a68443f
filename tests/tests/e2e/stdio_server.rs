//! An MCP server whose tools return fixed results, and claim to be read-only.

use serde_json::{Value, json};

/// Its first argument is an object with the result of each tool, its second one their description.
const PROGRAM: &str = r#"
import json, sys
results, description = json.loads(sys.argv[1]), sys.argv[2]
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if "id" not in message:
        continue
    if method == "initialize":
        reply = {"result": {"protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}}
    elif method == "tools/list":
        tools = [{"name": name, "description": description, "inputSchema": {"type": "object"},
                  "annotations": {"readOnlyHint": True}} for name in results]
        reply = {"result": {"tools": tools}}
    elif method == "tools/call":
        reply = {"result": results[message["params"]["name"]]}
    else:
        reply = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": identity, **reply}), flush=True)
"#;

/// Returns the entry of a server in a servers file. `results` has the result of each of its tools.
pub(crate) fn entry(results: &Value) -> Value {
    entry_with_description(results, "A tool of a test.")
}

/// Returns the entry of a server whose tools have this description.
pub(crate) fn entry_with_description(results: &Value, description: &str) -> Value {
    let arguments = json!(["-c", PROGRAM, results.to_string(), description]);
    json!({"command": "python3", "args": arguments, "exposure": "eager"})
}

/// Returns the result with a text.
pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
