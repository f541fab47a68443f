//! MCP servers behind bridges, as processes on a real broker.

use rockbot_testkit::{bed::until, mcp_peers::McpPeer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fleet::Fleet;

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
async fn tools_of_mcp_servers_are_listed_described_and_called_across_the_fleet() {
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
async fn a_file_of_servers_is_followed_and_checked() {
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
    assert!(shown.contains("can't be started") && shown.contains("neither"), "{shown}");
    fleet.run(&["mcp", "check", "missing.json"]).await.assert_code(64);
}

#[tokio::test]
async fn a_program_moves_to_another_bridge_when_its_own_is_killed() {
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
    until("the call to begin", || fleet.path("hangs").exists()).await;
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
