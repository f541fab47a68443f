//! `rockbot agents` and `rockbot tools list --agent` against a fleet.

use rockbot_testkit::mcp_servers::McpPeer;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    agents::use_demo_script,
    fleet::{Fleet, assert_contains},
    process::Running,
    workers::PYTHON,
};

const WRITER: &str = r#"+++
description = "Writes short texts."
+++
You write.
"#;

/// An agent that may not run commands.
const ASSISTANT: &str = r#"+++
description = "Helps with files."
[tools]
deny = ["bash"]
+++
You help.
"#;

fn find<'a>(entries: &'a Value, name: &str) -> &'a Value {
    let found = entries.as_array().into_iter().flatten().find(|one| one["name"] == name);
    found.unwrap_or(&Value::Null)
}

#[tokio::test]
async fn agents_and_their_tools_are_listed_with_who_serves_them() {
    let fleet = Fleet::new();
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    fleet.write("agents/writer.md", WRITER);
    fleet.write("agents/assistant.md", ASSISTANT);
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"Everything": {"command": program, "args": arguments}});
    let _bridge = fleet.bridge("bridge-1", &servers).await;
    let _handler = fleet.handler("handler-1").await;
    let mut worker = PYTHON.start(&fleet);
    worker.expect_log("ready").await;
    let mut agent = fleet.program("rockbot-agent");
    agent.env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"));
    use_demo_script(&mut agent);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;

    // The agent discovers the server shortly after it is ready.
    let list = async || fleet.run(&["--json", "tools", "list", "--agent", "assistant"]).await;
    let mut listed = list().await;
    for _ in 0..20 {
        if listed.stdout.contains("Everything__echo") {
            break;
        }
        listed = list().await;
    }
    listed.assert_code(0);
    let tools = listed.json();
    for (name, source, served_by) in [
        ("read_file", "files", "tool-handler/handler-1"),
        ("Everything__echo", "mcp:Everything", "MCP server Everything"),
        ("mcp_invoke_tool", "mcp:management", "agent assistant"),
        ("list_tool_guides", "internal", "agent assistant"),
        ("agent__writer", "agent:writer", "agent writer"),
    ] {
        let tool = find(&tools, name);
        assert_eq!(
            (&tool["source"], &tool["servedBy"]),
            (&json!(source), &json!(served_by)),
            "{name}"
        );
    }
    let query = find(&tools, "query_table")["servedBy"].as_str().unwrap_or_default().to_owned();
    assert!(query.contains("-worker/"), "{query}");
    assert!(find(&tools, "bash").is_null(), "the definition denies it");
    let table = fleet.run(&["tools", "list", "--agent", "assistant"]).await;
    table.assert_code(0);
    assert_contains(&table.stdout, &["SERVED BY", "MCP server Everything", "may destroy"]);

    let agents = fleet.run(&["agents"]).await;
    agents.assert_code(0);
    assert_contains(
        &agents.stdout,
        &["Helps with files.", "tool of assistant", "Writes short texts."],
    );
    let agents = fleet.run(&["--json", "agents"]).await.json();
    let assistant = find(&agents, "assistant");
    assert_eq!((&assistant["state"], &assistant["processes"]), (&json!("running"), &json!(1)));
    assert!(assistant["tools"].as_u64() >= Some(10), "{assistant}");
    assert_eq!(find(&agents, "writer")["toolOf"], "assistant");

    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
    let agents = fleet.run(&["agents"]).await;
    agents.assert_code(0);
    assert_contains(&agents.stdout, &["assistant", "not running"]);
    fleet.run(&["tools", "list", "--agent", "assistant"]).await.assert_code(69);
}
