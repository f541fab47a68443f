//! Definitions of the tools of MCP servers: the tools that are offered and their names, and those that are rejected.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::{
    caller::Caller,
    fleet::{Fleet, assert_contains},
    mcp_settings::gateway,
    process::{Exit, Running},
    stdio_server::entry_with_tools,
};

/// Returns the servers of a file with the server `many`, which has these tools.
fn servers(fleet: &Fleet, tools: &[Value]) -> Value {
    json!({"many": entry_with_tools(fleet, tools)})
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// Runs `rockbot` without a broker.
async fn run(fleet: &Fleet, arguments: &[&str]) -> Exit {
    let mut command = fleet.program_without_bus("rockbot");
    command.args(arguments);
    Running::start(command).wait().await
}

#[tokio::test]
async fn rejected_and_renamed_tools_are_listed_with_reasons() {
    let long = format!("create_{}", "very_".repeat(20));
    let fleet = Fleet::new();
    let mut tools: Vec<_> = (0..1001).map(|number| tool(&format!("t{number}"))).collect();
    let missing = json!({"type": "object", "$ref": "#/missing"});
    let first =
        [tool("twice"), tool("twice"), tool(&long), tool("a.b"), tool("a_b"), tool("plain.name")];
    tools.splice(0..0, first);
    tools.push(json!({"name": "unreached", "inputSchema": missing}));
    tools.insert(1, json!({"name": "odd", "inputSchema": missing}));
    fleet.write("mcp.json", &json!({"mcpServers": servers(&fleet, &tools)}).to_string());

    let reasons = [
        ("twice", "it is listed twice; the first one is used"),
        // Seven tools come before those with numbers, and one of them is a duplicate.
        (
            "t994",
            "the limit is 1000 tools, and at least 7 more are listed; choose tools with toolsAllowed",
        ),
        ("odd", "/missing"),
    ];
    let checked = run(&fleet, &["--json", "mcp", "check", "mcp.json"]).await;
    checked.assert_code(0);
    let checked = checked.json()["servers"][0].clone();
    assert_rejected(&checked, &reasons);
    // One of the thousand is odd.
    assert_eq!(checked["tools"], 999, "{checked}");
    let listed = run(&fleet, &["--json", "--mcp", "mcp.json", "mcp", "list"]).await;
    listed.assert_code(0);
    let listed = listed.json()[0].clone();
    assert_rejected(&listed, &reasons);
    assert_eq!(
        (&listed["states"][0]["toolsOffered"], &listed["states"][0]["toolsLeftOut"]),
        (&json!(999), &json!(3))
    );
    let short = |name: &str| {
        let renamed = listed["renamedTools"].as_array().expect("a list").iter();
        let mut renamed = renamed.filter(|tool| tool["name"] == name);
        let short = renamed.next().expect(name)["modelName"].as_str().expect("a name").to_owned();
        assert!(short.len() <= 64 && short.starts_with("many__"), "{short}");
        short
    };
    assert_eq!(checked["renamedTools"], listed["renamedTools"]);
    assert_eq!(listed["renamedTools"].as_array().map(Vec::len), Some(3), "{listed}");

    let line = |name: &str| format!("tool {name} of many is offered to models as {}", short(name));
    let (one, two, three) = (line(&long), line("a.b"), line("a_b"));
    for arguments in [&["mcp", "check", "mcp.json"][..], &["--mcp", "mcp.json", "mcp", "list"]] {
        let shown = run(&fleet, arguments).await;
        shown.assert_code(0);
        assert_contains(&shown.stdout, &[&one, &two, &three]);
        for (name, reason) in reasons {
            let line = shown.stdout.lines().find(|line| line.contains(reason)).expect(reason);
            assert_contains(line, &[&format!("tool {name} of many is not offered: ")]);
        }
    }
}

#[track_caller]
fn assert_rejected(server: &Value, expected: &[(&str, &str)]) {
    let rejected = server["rejectedTools"].as_array().expect("a list");
    assert_eq!(rejected.len(), expected.len(), "{rejected:?}");
    for (name, reason) in expected {
        let found = rejected.iter().find(|tool| tool["name"] == *name).expect(name);
        assert_contains(found["reason"].as_str().expect("a reason"), &[reason]);
    }
}

/// Returns a schema whose evaluation takes 4^30 steps.
fn exponential() -> Value {
    let mut definitions = Map::new();
    for number in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        definitions.insert(format!("d{number}"), json!({"anyOf": [next, next, next, next]}));
    }
    definitions.insert("d30".to_owned(), json!({"type": "string"}));
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
}

#[tokio::test]
async fn exponential_schema_does_not_stop_a_bridge() {
    let fleet = Fleet::new();
    let tools = [json!({"name": "bad", "inputSchema": exponential()}), tool("good")];
    let mut bridge = fleet.bridge("bridge-1", &servers(&fleet, &tools)).await;
    let gateway = gateway(&fleet, "caller").await;
    let index = gateway.index();
    wait_until("the server", || index.borrow().get("many").is_some()).await;
    let caller = Caller::new(fleet.bus(|_| {}).await, TEST_TIMEOUT);
    let arguments = json!({"x": 1});

    // Also without the command, which asks for the definition first.
    let context = caller.context("bad", Duration::from_secs(20));
    let called = gateway.call("many", "bad", arguments.clone(), &context);
    let refused = within_timeout("the failure", called).await.expect_err("refused");
    assert_eq!((refused.code(), refused.executed()), (ToolErrorCode::ToolNotFound, Executed::No));
    let call = ["--json", "mcp", "call", "many", "bad", &arguments.to_string()];
    let refused = fleet.run(&call).await;
    refused.assert_code(69);
    assert_eq!(refused.json()["executed"], json!(Executed::No));
    let listed = fleet.run(&["mcp", "list"]).await;
    assert_contains(&listed.stdout, &["tool bad of many is not offered: "]);

    let called = fleet.run(&["--json", "mcp", "call", "many", "good"]).await;
    called.assert_code(0);
    assert_eq!(called.json()["content"], "good");
    assert!(bridge.is_alive(), "the bridge exited");
    bridge.send(Signal::TERM);
    bridge.wait_within(TEST_TIMEOUT).await.assert_code(0);
}
