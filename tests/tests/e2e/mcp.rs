//! MCP servers behind bridges on a real broker.

use rockbot_testkit::{fixture::wait_until, mcp_peers::McpPeer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_says},
    process::Running,
};

/// What the model does: it asks what there is and calls a tool through the tool that manages
/// servers; and, of a server that is offered by name, calls the tool itself.
const CALLS_A_SERVER: &str = r#"
[[turn]]
text = "Let me see."
[[turn.call]]
name = "mcp_list_services"
arguments = {}

[[turn]]
text = "There it is."
[[turn.call]]
name = "mcp_invoke_tool"
arguments = { server_name = "everything", tool_name = "get-sum", arguments = { a = 20, b = 22 } }
[[turn.call]]
name = "Everything__echo"
arguments = { message = "by its own name" }

[[turn]]
text = """
{{result.mcp_list_services}}
{{result.mcp_invoke_tool}}
{{result.Everything__echo}}
"""
"#;

/// An agent that is offered every tool of every server.
const EAGER: &str = r#"
name = "assistant"
description = "Calls tools."
system_prompt = "You call tools."
[mcp]
exposure = "eager"
"#;

/// A program that tells its process, to see which one answers.
const TELLS_ITS_PROCESS: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if identity is None:
        continue
    say = lambda result: print(json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}), flush=True)
    if method == "initialize":
        say({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "process", "version": "1"}})
    elif method == "tools/list":
        tool = lambda name: {"name": name, "inputSchema": {"type": "object"}}
        say({"tools": [tool("pid"), tool("hang")]})
    elif method == "tools/call" and message["params"]["name"] == "pid":
        say({"content": [{"type": "text", "text": str(os.getpid())}]})
    elif method == "tools/call":
        open("hangs", "a").write("once\n")
        time.sleep(1000)
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": identity,
                          "error": {"code": -32601, "message": "unknown"}}), flush=True)
"#;

fn peer(peer: McpPeer) -> Value {
    let (program, arguments) = peer.command();
    json!({"command": program, "args": arguments})
}

#[tokio::test]
async fn mcp_tools_are_listed_described_and_called() {
    let fleet = Fleet::new();
    let _bridge = fleet.bridge("bridge-1", &json!({"Everything": peer(McpPeer::Everything)})).await;

    let listed = fleet.run(&["--json", "mcp", "list"]).await;
    listed.assert_code(0);
    assert_eq!(listed.json()[0]["name"], "Everything");
    let described = fleet.run(&["mcp", "describe", "everything", "get-sum"]).await;
    described.assert_code(0);
    assert!(described.out.contains("\"type\": \"number\""), "{}", described.out);

    let call = ["--json", "mcp", "call", "EVERYTHING", "echo", r#"{"message": "hello"}"#];
    let called = fleet.run(&call).await;
    called.assert_code(0);
    let said = called.json();
    assert_eq!((&said["content"], &said["executed"]), (&"Echo: hello".into(), &"yes".into()));
    let image = fleet.run(&["--json", "mcp", "call", "everything", "get-tiny-image"]).await;
    let blocks = image.json()["blocks"].as_array().expect("blocks").clone();
    assert!(blocks.iter().any(|block| block["type"] == "image"), "{blocks:?}");

    let wrong = fleet.run(&["mcp", "call", "everything", "nothing"]).await;
    wrong.assert_code(69);
    let refused = fleet.run(&["mcp", "add", "more", "--", "python3", "server.py"]).await;
    refused.assert_code(1);
    assert!(refused.err.contains("operator"), "{}", refused.err);
}

#[tokio::test]
async fn model_calls_mcp_server_through_bridge() {
    let fleet = Fleet::new();
    fleet.write("script.toml", CALLS_A_SERVER);
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    fleet.write("agents/assistant.toml", EAGER);
    let _bridge = fleet.bridge("bridge-1", &json!({"Everything": peer(McpPeer::Everything)})).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"))
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let mut agent = Running::start(agent);
    agent.says("ready").await;

    // The agent hears of the server a moment after it is ready, and that may be within the turn.
    let mut chat = fleet.run(&["chat", "What is 20 and 22?"]).await;
    for _ in 0..100 {
        if !chat.out.contains("tool not found") {
            break;
        }
        chat = fleet.run(&["chat", "What is 20 and 22?"]).await;
    }
    chat.assert_code(0);
    assert_says(
        &chat.out,
        &[
            "→ mcp_list_services ",
            "← mcp_invoke_tool ran on mcp-bridge/bridge-1",
            "← Everything__echo ran on mcp-bridge/bridge-1",
            "\"name\":\"Everything\"",
            "The sum of 20 and 22 is 42.",
            "Echo: by its own name",
        ],
    );
    agent.send(Signal::TERM);
    agent.ended().await.assert_code(0);
}

#[tokio::test]
async fn server_file_changes_are_applied_and_checked() {
    let fleet = Fleet::new();
    fleet.write("server.py", TELLS_ITS_PROCESS);
    let entry = json!({"command": "python3", "args": ["server.py"], "cwd": fleet.path("")});
    let _bridge = fleet.bridge("bridge-1", &json!({"one": entry})).await;
    let names = async || {
        let listed = fleet.run(&["--json", "mcp", "list"]).await;
        let servers = listed.json();
        let names = servers.as_array().into_iter().flatten().map(|one| one["name"].clone());
        Value::Array(names.collect())
    };
    assert_eq!(names().await, json!(["one"]));
    let before = fleet.run(&["mcp", "call", "one", "pid"]).await.out;
    // A broken file changes nothing; the next good one does.
    fleet.write("bridge-1.json", "{\"mcpServers\": ");
    fleet.write("bridge-1.json", &json!({"mcpServers": {"one": entry, "two": entry}}).to_string());
    while names().await != json!(["one", "two"]) {}
    let after = fleet.run(&["mcp", "call", "one", "pid"]).await.out;
    assert_eq!(before, after, "what did not change goes on");

    let checked = fleet.run(&["mcp", "check", "bridge-1.json"]).await;
    checked.assert_code(0);
    assert!(checked.out.contains("ready"), "{}", checked.out);
    let broken = json!({"mcpServers": {"none": {"command": "/nowhere"}, "both": {}}}).to_string();
    fleet.write("broken.json", &broken);
    let checked = fleet.run(&["mcp", "check", "broken.json"]).await;
    checked.assert_code(1);
    let shown = checked.out;
    assert!(shown.contains("cannot start its program") && shown.contains("neither"), "{shown}");
    fleet.run(&["mcp", "check", "missing.json"]).await.assert_code(64);
}

#[tokio::test]
async fn server_program_moves_when_bridge_is_killed() {
    let fleet = Fleet::new();
    fleet.write("server.py", TELLS_ITS_PROCESS);
    let servers = json!({"process": {"command": "python3", "args": ["server.py"],
        "cwd": fleet.path("")}});
    let first = fleet.bridge("bridge-1", &servers).await;
    let pid = async || {
        let called = fleet.run(&["--json", "mcp", "call", "process", "pid"]).await;
        (called.code == Some(0)).then(|| called.json()["content"].as_str().map(str::to_owned))
    };
    let before = pid().await.flatten().expect("an answer");
    let second = fleet.bridge("bridge-2", &servers).await;
    assert_eq!(pid().await.flatten().as_ref(), Some(&before), "one owner at a time");

    // A call is under way when its bridge dies.
    let hanging = fleet.start(&["--json", "mcp", "call", "--timeout", "8", "process", "hang"]);
    wait_until("the call to begin", || fleet.path("hangs").exists()).await;
    first.send(Signal::KILL);
    let hung = hanging.ended().await;
    hung.assert_code(75);
    assert_eq!(hung.json()["executed"], "unknown");
    let after = loop {
        if let Some(Some(pid)) = pid().await {
            break pid;
        }
    };
    assert_ne!(before, after);
    let hangs = std::fs::read_to_string(fleet.path("hangs")).expect("a side effect");
    assert_eq!(hangs, "once\n", "it was not run again");
    second.send(Signal::TERM);
    second.ended().await.assert_code(0);
}
