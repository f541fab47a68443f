//! MCP servers behind bridges on a real broker.

use rockbot_testkit::{fixture::wait_until, mcp_servers::McpPeer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// Script of a model that lists the servers, calls a tool through `mcp_invoke_tool`, and calls a tool of
/// the server by its own name.
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

/// An agent to which every tool of every server is offered.
const EAGER: &str = r#"
name = "assistant"
description = "Calls tools."
system_prompt = "You call tools."
[mcp]
exposure = "eager"
"#;

/// An MCP server whose tool `pid` returns its process id, and whose tool `hang` never returns.
const PROCESS_SERVER: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if identity is None:
        continue
    reply = lambda result: print(json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}), flush=True)
    if method == "initialize":
        reply({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
               "serverInfo": {"name": "process", "version": "1"}})
    elif method == "tools/list":
        tool = lambda name: {"name": name, "inputSchema": {"type": "object"}}
        reply({"tools": [tool("pid"), tool("hang")]})
    elif method == "tools/call" and message["params"]["name"] == "pid":
        reply({"content": [{"type": "text", "text": str(os.getpid())}]})
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
    assert!(described.stdout.contains("\"type\": \"number\""), "{}", described.stdout);

    let call = ["--json", "mcp", "call", "EVERYTHING", "echo", r#"{"message": "hello"}"#];
    let called = fleet.run(&call).await;
    called.assert_code(0);
    let result = called.json();
    assert_eq!((&result["content"], &result["executed"]), (&"Echo: hello".into(), &"yes".into()));
    let image = fleet.run(&["--json", "mcp", "call", "everything", "get-tiny-image"]).await;
    let blocks = image.json()["blocks"].as_array().expect("blocks").clone();
    assert!(blocks.iter().any(|block| block["type"] == "image"), "{blocks:?}");

    let wrong = fleet.run(&["mcp", "call", "everything", "nothing"]).await;
    wrong.assert_code(69);
    let refused = fleet.run(&["mcp", "add", "more", "--", "python3", "server.py"]).await;
    refused.assert_code(1);
    assert!(refused.stderr.contains("operator"), "{}", refused.stderr);
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
    agent.expect_log("ready").await;

    // The agent discovers the server shortly after it is ready, possibly during the turn.
    let mut chat = fleet.run(&["chat", "What is 20 and 22?"]).await;
    for _ in 0..100 {
        if !chat.stdout.contains("tool not found") {
            break;
        }
        chat = fleet.run(&["chat", "What is 20 and 22?"]).await;
    }
    chat.assert_code(0);
    assert_contains(
        &chat.stdout,
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
    agent.wait().await.assert_code(0);
}

#[tokio::test]
async fn server_file_changes_are_applied_and_checked() {
    let fleet = Fleet::new();
    fleet.write("server.py", PROCESS_SERVER);
    let entry = json!({"command": "python3", "args": ["server.py"], "cwd": fleet.path("")});
    let _bridge = fleet.bridge("bridge-1", &json!({"one": entry})).await;
    let names = async || {
        let listed = fleet.run(&["--json", "mcp", "list"]).await;
        let servers = listed.json();
        let names = servers.as_array().into_iter().flatten().map(|one| one["name"].clone());
        Value::Array(names.collect())
    };
    assert_eq!(names().await, json!(["one"]));
    let before = fleet.run(&["mcp", "call", "one", "pid"]).await.stdout;
    // An invalid file is ignored; the next valid one is applied.
    fleet.write("bridge-1.json", "{\"mcpServers\": ");
    fleet.write("bridge-1.json", &json!({"mcpServers": {"one": entry, "two": entry}}).to_string());
    while names().await != json!(["one", "two"]) {}
    let after = fleet.run(&["mcp", "call", "one", "pid"]).await.stdout;
    assert_eq!(before, after, "an unchanged server was restarted");

    let checked = fleet.run(&["mcp", "check", "bridge-1.json"]).await;
    checked.assert_code(0);
    assert!(checked.stdout.contains("ready"), "{}", checked.stdout);
    let broken = json!({"mcpServers": {"none": {"command": "/nowhere"}, "both": {}}}).to_string();
    fleet.write("broken.json", &broken);
    let checked = fleet.run(&["mcp", "check", "broken.json"]).await;
    checked.assert_code(64);
    let shown = checked.stdout;
    assert!(shown.contains("cannot start its program") && shown.contains("neither"), "{shown}");
    fleet.run(&["mcp", "check", "missing.json"]).await.assert_code(64);
    // A key of another client has no effect, and an unusable tool costs only itself.
    let odd = PROCESS_SERVER.replace(
        r#"tool("hang")"#,
        r##"{"name": "odd", "inputSchema": {"type": "object", "$ref": "#/missing"}}"##,
    );
    fleet.write("odd.py", &odd);
    let odd = json!({"command": "python3", "args": ["odd.py"], "cwd": fleet.path(""),
        "autoApprove": []});
    fleet.write("odd.json", &json!({"mcpServers": {"odd": odd}}).to_string());
    let checked = fleet.run(&["--json", "mcp", "check", "odd.json"]).await;
    checked.assert_code(0);
    let report = checked.json();
    assert_eq!(report["servers"][0]["tools"], 1, "{report}");
    assert_eq!(report["servers"][0]["rejectedTools"][0]["name"], "odd", "{report}");
    assert_eq!(
        (report["warnings"].as_array().map(Vec::len), &report["problems"]),
        (Some(1), &json!([]))
    );
}

#[tokio::test]
async fn server_program_moves_when_bridge_is_killed() {
    let fleet = Fleet::new();
    fleet.write("server.py", PROCESS_SERVER);
    let servers = json!({"process": {"command": "python3", "args": ["server.py"],
        "cwd": fleet.path("")}});
    let first = fleet.bridge("bridge-1", &servers).await;
    let pid = async || {
        let called = fleet.run(&["--json", "mcp", "call", "process", "pid"]).await;
        (called.code == Some(0)).then(|| called.json()["content"].as_str().map(str::to_owned))
    };
    let before = pid().await.flatten().expect("a process id");
    let second = fleet.bridge("bridge-2", &servers).await;
    assert_eq!(pid().await.flatten().as_ref(), Some(&before), "one owner at a time");

    // The bridge is killed during a call.
    let hanging = fleet.start(&["--json", "mcp", "call", "--timeout", "8", "process", "hang"]);
    wait_until("the call to start", || fleet.path("hangs").exists()).await;
    first.send(Signal::KILL);
    let hung = hanging.wait().await;
    hung.assert_code(75);
    assert_eq!(hung.json()["executed"], "unknown");
    let after = loop {
        if let Some(Some(pid)) = pid().await {
            break pid;
        }
    };
    assert_ne!(before, after);
    let hangs = std::fs::read_to_string(fleet.path("hangs")).expect("a side effect");
    assert_eq!(hangs, "once\n", "the call ran more than once");
    second.send(Signal::TERM);
    second.wait().await.assert_code(0);
}

#[tokio::test]
async fn states_of_a_fleet_with_only_a_bridge_are_shown() {
    let fleet = Fleet::new();
    fleet.write("server.py", PROCESS_SERVER);
    let entry = json!({"command": "python3", "args": ["server.py"], "cwd": fleet.path("")});
    let servers = json!({"one": entry, "down": {"command": "/no/such/program"}});
    let _bridge = fleet.bridge("bridge-1", &servers).await;
    let state = async |server: &str| {
        let listed = fleet.run(&["--json", "mcp", "list"]).await.json();
        let mut servers = listed.as_array().into_iter().flatten();
        servers.find(|one| one["name"] == server).map(|one| one["states"][0].clone())
    };
    let is = |state: &Option<Value>, expected: &str| {
        state.as_ref().is_some_and(|state| state["connection"] == expected)
    };
    while !is(&state("down").await, "failed") {}
    let mut connected = state("one").await;
    while !is(&connected, "connected") {
        connected = state("one").await;
    }
    let connected = connected.expect("a state");
    assert_eq!(connected["bridge"], "bridge-1");
    assert_eq!((&connected["toolsOffered"], &connected["restarts"]), (&json!(2), &json!(0)));
    let table = fleet.run(&["mcp", "list"]).await;
    table.assert_code(0);
    assert!(table.stdout.contains("cannot start its program"), "{}", table.stdout);
    let doctor = fleet.run(&["--json", "doctor"]).await;
    doctor.assert_code(0);
    let findings = doctor.json()["findings"].to_string();
    assert!(findings.contains("MCP server down is not connected at bridge-1"), "{findings}");
    assert!(findings.contains("no tool handler is available"), "{findings}");
}

#[tokio::test]
async fn resources_and_prompts_cross_the_bus() {
    let fleet = Fleet::new();
    let _bridge = fleet.bridge("bridge-1", &json!({"Everything": peer(McpPeer::Everything)})).await;
    let listed = fleet.run(&["--json", "mcp", "resources", "everything"]).await;
    listed.assert_code(0);
    let listed = listed.json();
    let uri = listed[0]["uri"].as_str().expect("a resource").to_owned();
    let read = fleet.run(&["--json", "mcp", "read", "everything", &uri]).await;
    read.assert_code(0);
    assert_eq!(read.json()["content"][0]["uri"], uri.as_str());
    let prompts = fleet.run(&["--json", "mcp", "prompt", "everything"]).await;
    prompts.assert_code(0);
    let prompts = prompts.json();
    let prompts = prompts.as_array().expect("a list");
    let simple = prompts.iter().find(|prompt| prompt["arguments"].is_null()).expect("a prompt");
    let name = simple["name"].as_str().expect("a name");
    let text = fleet.run(&["mcp", "prompt", "everything", name]).await;
    text.assert_code(0);
    assert!(!text.stdout.trim().is_empty());
}
