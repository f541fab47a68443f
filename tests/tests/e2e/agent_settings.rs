//! Settings of agents: aliases of tools, trusted hints, tiers of models, and servers that a model adds.

use rockbot_testkit::mcp_servers::McpPeer;
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_contains},
    process::{Exit, Running},
    stdio_server,
};

/// Script of a model that reads a file by another name of the tool.
const READS_BY_ALIAS: &str = r#"
[[turn]]
[[turn.call]]
name = "open_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says {{result.open_file}}"
"#;

/// Script of a model that reads a file.
pub(crate) const READS: &str = r#"
[[turn]]
[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says {{result.read_file}}"
"#;

/// Returns a fleet with the file that models read.
pub(crate) fn fleet() -> Fleet {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.");
    fleet
}

/// Returns an agent that plays a script.
pub(crate) fn agent(fleet: &Fleet, script: &str) -> Command {
    let script = fleet.write("script.toml", script);
    let mut agent = fleet.program("rockbot-agent");
    agent.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    agent
}

#[tokio::test]
async fn model_calls_tool_by_configured_alias() {
    let fleet = fleet();
    let handler = fleet.handler("handler-1").await;
    let config = fleet.write("agent.toml", "[agent.aliases]\nopen_file = \"read_file\"\n");
    let mut agent = agent(&fleet, READS_BY_ALIAS);
    agent.arg("--config").arg(config);
    let (agent, chat) = fleet.chat_with(agent).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["It says", "The bus carries each call."]);
    // Both processes log the call, without its content.
    for log in [agent.log(), handler.log()] {
        let line = log.lines().find(|line| line.contains("tool response")).expect("a log line");
        assert_contains(line, &["read_file", "elapsed_ms=", "chars_in=", "chars_out=", "status="]);
        assert!(!log.contains("carries each call"), "{log}");
    }
}

#[tokio::test]
async fn invalid_alias_fails_the_start() {
    let fleet = fleet();
    let config = fleet.write("agent.toml", "[agent.aliases]\n\"open file\" = \"read_file\"\n");
    let mut agent = agent(&fleet, READS);
    agent.arg("--check-config").arg("--config").arg(config);
    let refused = Running::start(agent).wait().await;
    refused.assert_code(64);
    assert_contains(&refused.stderr, &["agent.aliases.open file"]);
}

/// Chats with an agent that permits only read-only tools and trusts the hints of these pools, while the
/// pool `files` runs the file tools.
async fn reads_with_trust(trusted: &str) -> Exit {
    let fleet = fleet();
    let pool = [("ROCKBOT_HANDLER__POOL", "files"), ("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#)];
    let _handler = fleet.handler_with("files-1", &pool).await;
    let config = format!(
        "[approval]\npolicy = \"deny\"\ntrust_hints = [{trusted:?}]\n\
         [[approval.rules]]\nread_only = true\npolicy = \"allow\"\n"
    );
    let config = fleet.write("agent.toml", &config);
    let mut agent = agent(&fleet, READS);
    agent.arg("--config").arg(config);
    fleet.chat_with(agent).await.1
}

#[tokio::test]
async fn hints_of_untrusted_pool_lift_no_approval_rule() {
    let refused = reads_with_trust("unnamed").await;
    assert_contains(&refused.stdout, &["(tool failed: not permitted: this call is denied"]);
    let permitted = reads_with_trust("files").await;
    assert_contains(&permitted.stdout, &["It says", "The bus carries each call."]);
}

#[tokio::test]
async fn definition_selects_tier_with_its_own_model() {
    let fleet = fleet();
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    let definition = |tier: &str| {
        format!("name = \"assistant\"\nsystem_prompt = \"Be brief.\"\ntier = \"{tier}\"\n")
    };
    let low = fleet.write("low.toml", "[[turn]]\ntext = \"I am the small one.\"\n");
    for (tier, expected) in [("low", "I am the small one."), ("high", "I am the usual one.")] {
        fleet.write("agents/assistant.toml", &definition(tier));
        let mut agent = agent(&fleet, "[[turn]]\ntext = \"I am the usual one.\"\n");
        agent
            .env("ROCKBOT_LLM__LOW__SCRIPT", &low)
            .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"));
        let (_agent, chat) = fleet.chat_with(agent).await;
        assert_contains(&chat.stdout, &[expected]);
    }
}

#[tokio::test]
async fn low_tier_summarizes_servers() {
    let fleet = fleet();
    let usual = fleet.write("usual.toml", "[[turn]]\ntext = \"By the usual model.\"\n");
    let low = fleet.write("low.toml", "[[turn]]\ntext = \"By the small model.\"\n");
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"everything": {"command": program, "args": arguments}});
    let settings = [
        ("ROCKBOT_MCP__SUMMARIES", "true"),
        ("ROCKBOT_LLM__PROVIDER", "scripted"),
        ("ROCKBOT_LLM__SCRIPT", usual.to_str().expect("a path")),
        ("ROCKBOT_LLM__LOW__SCRIPT", low.to_str().expect("a path")),
    ];
    let _bridge = fleet.bridge_with("bridge-1", &servers, &settings).await;
    let mut listed = fleet.run(&["--json", "mcp", "list"]).await;
    for _ in 0..100 {
        if listed.stdout.contains("By the small model.") {
            return;
        }
        assert!(!listed.stdout.contains("By the usual model."), "{}", listed.stdout);
        listed = fleet.run(&["--json", "mcp", "list"]).await;
    }
    panic!("no summary by the model: {}", listed.stdout);
}

/// Script of a model that adds a server and calls its tool.
const ADDS_A_SERVER: &str = r#"
[[turn]]
[[turn.call]]
name = "mcp_register_server"
arguments = { server_name = "added", command = "python3", arguments = ["server.py"] }

[[turn]]
text = "Added: {{result.mcp_register_server}}"
"#;

#[tokio::test]
async fn model_of_embedded_fleet_adds_server_where_permitted() {
    let fleet = fleet();
    fleet.write("server.py", crate::mcp_settings::SERVER);
    let script = fleet.write("script.toml", ADDS_A_SERVER);
    let chat = async |allowed: &str| {
        let mut command = fleet.program_without_bus("rockbot");
        command
            .args(["chat", "go"])
            .env("ROCKBOT_LLM__PROVIDER", "scripted")
            .env("ROCKBOT_LLM__SCRIPT", &script)
            .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", "memory:")
            .env("ROCKBOT_MCP__ALLOW_REGISTRATION", allowed)
            .env("ROCKBOT_MCP__ALLOWED_COMMANDS", r#"["python3"]"#);
        Running::start(command).wait().await
    };
    assert_contains(&chat("true").await.stdout, &["Added: {", r#""added":"added""#]);
    assert_contains(&chat("false").await.stdout, &["(tool failed: tool not found"]);
}

/// Script of a model that adds a server in its first turn and removes it in its second.
const ADDS_AND_REMOVES: &str = r#"
[[turn]]
when = "add"
[[turn.call]]
name = "mcp_register_server"
arguments = { server_name = "added", command = "python3", arguments = ["server.py"] }
[[turn]]
text = "{{result.mcp_register_server}}"

[[turn]]
when = "remove"
[[turn.call]]
name = "mcp_unregister_server"
arguments = { server_name = "added" }
[[turn]]
text = "{{result.mcp_unregister_server}}"
"#;

#[tokio::test]
async fn model_adds_and_removes_server_of_a_bridge_that_allows_it() {
    let fleet = fleet();
    fleet.write("server.py", crate::mcp_settings::SERVER);
    let allowed = [
        ("ROCKBOT_MCP__ALLOW_REGISTRATION", "true"),
        ("ROCKBOT_MCP__ALLOWED_COMMANDS", r#"["python3"]"#),
    ];
    let _bridge = fleet.bridge_with("bridge-1", &json!({}), &allowed).await;
    let start = async |may_register: &str| {
        let mut agent = agent(&fleet, ADDS_AND_REMOVES);
        agent.env("ROCKBOT_MCP__REGISTER", may_register);
        let mut agent = Running::start(agent);
        agent.expect_log("ready").await;
        agent
    };
    let refusing = start("false").await;
    let refused = fleet.run(&["chat", "add"]).await;
    assert_contains(&refused.stdout, &["(tool failed: tool not found"]);
    refusing.send(Signal::TERM);
    refusing.wait().await.assert_code(0);

    let _agent = start("true").await;
    assert_contains(&fleet.run(&["chat", "add"]).await.stdout, &[r#""added":"added""#]);
    let called = fleet.run(&["mcp", "call", "added", "quick"]).await;
    called.assert_code(0);
    assert_contains(&called.stdout, &["quick"]);
    assert_contains(&fleet.run(&["chat", "remove"]).await.stdout, &["The server is removed."]);
    fleet.run(&["mcp", "call", "added", "quick"]).await.assert_code(69);
}

/// Script of a model that calls a tool of an MCP server.
const CALLS_A_SERVER: &str = r#"
[[turn]]
[[turn.call]]
name = "crm__find"
arguments = {}

[[turn]]
text = "[{{result.crm__find}}]"
"#;

#[tokio::test]
async fn hints_of_server_lift_no_approval_rule() {
    let fleet = fleet();
    // The server claims that its tools are read-only.
    let servers =
        json!({"crm": stdio_server::entry(&json!({"find": stdio_server::text("found")}))});
    let _bridge = fleet.bridge("bridge-1", &servers).await;
    for (policy, expected) in [("deny", "not permitted: this call is denied"), ("allow", "[found]")]
    {
        let config = format!(
            "[approval]\npolicy = {policy:?}\n[[approval.rules]]\nread_only = true\npolicy = \"allow\"\n"
        );
        let config = fleet.write("agent.toml", &config);
        let mut agent = agent(&fleet, CALLS_A_SERVER);
        agent.arg("--config").arg(config);
        let (agent, chat) = fleet.chat_with(agent).await;
        assert_contains(&chat.stdout, &[expected]);
        agent.send(Signal::TERM);
        agent.wait().await.assert_code(0);
    }
}
