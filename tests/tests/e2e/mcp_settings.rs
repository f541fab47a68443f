//! Settings of a servers file that apply beside its servers: queues, timeouts, exposure, traces; and large
//! results of servers.

use std::{sync::Arc, time::Duration};

use rockbot_bus::Requester;
use rockbot_contracts::{AgentName, InstanceId, topology::ReplyAddress};
use rockbot_testkit::fixture::wait_until;
use rockbot_tool_rpc::mcp::{BusGateway, McpGateway};
use serde_json::{Value, json};

use crate::{
    caller::Caller,
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// An MCP server: `hang` reports that it runs in a file and never returns, `quick` returns at once, and `large`
/// returns two megabytes. Its calls run concurrently.
pub(crate) const SERVER: &str = r#"
import json, sys
say = lambda message: print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if "id" not in message:
        continue
    if method == "initialize":
        say({"id": identity, "result": {"protocolVersion": message["params"]["protocolVersion"],
             "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}})
    elif method == "tools/list":
        tool = lambda name: {"name": name, "inputSchema": {"type": "object"}}
        say({"id": identity, "result": {"tools": [tool("hang"), tool("quick"), tool("large")]}})
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "hang":
            open("hangs", "a").write("once\n")
            continue
        text = "quick" if name == "quick" else "".join(
            "line %d of the large result, with words behind it\n" % number for number in range(45000))
        say({"id": identity, "result": {"content": [{"type": "text", "text": text}]}})
    else:
        say({"id": identity, "error": {"code": -32601, "message": "unknown"}})
"#;

fn server(fleet: &Fleet, extra: &Value) -> Value {
    let mut entry = json!({"command": "python3", "args": ["server.py"], "cwd": fleet.path("")});
    let extra = extra.as_object().expect("an object").clone();
    entry.as_object_mut().expect("an object").extend(extra);
    entry
}

/// Starts a bridge with this servers file.
async fn bridge(fleet: &Fleet, file: &Value, settings: &[(&str, &str)]) -> Running {
    fleet.write("server.py", SERVER);
    fleet.write("mcp.json", &file.to_string());
    let mut command = fleet.program("rockbot-mcp-bridge");
    command
        .env("ROCKBOT_SERVICE__INSTANCE", "bridge-1")
        .env("ROCKBOT_MCP__CONFIG", "mcp.json")
        .envs(settings.iter().copied());
    let mut running = Running::start(command);
    running.expect_log("ready").await;
    running
}

/// Returns the servers of the fleet, for calls of an agent with this name.
pub(crate) async fn gateway(fleet: &Fleet, agent: &str) -> Arc<BusGateway> {
    let name = AgentName::new(agent).expect("a name");
    let address = ReplyAddress::new(name, InstanceId::generate());
    let requester = Arc::new(Requester::new(fleet.bus(|_| {}).await, address));
    BusGateway::start(requester).await.expect("started")
}

#[tokio::test]
async fn waiting_calls_of_a_queue_hold_no_running_place() {
    let fleet = Fleet::new();
    let slow = server(&fleet, &json!({"queue": "slow"}));
    let file = json!({"queues": {"slow": {"concurrent": 1}},
        "mcpServers": {"one": slow, "two": slow, "other": server(&fleet, &json!({}))}});
    let _bridge = bridge(&fleet, &file, &[("ROCKBOT_HANDLER__CONCURRENCY", "4")]).await;
    let hang = |server: &str| fleet.start(&["mcp", "call", "--timeout", "60", server, "hang"]);
    let _calls: Vec<_> = ["one", "two", "one", "two", "one"].map(hang).into();
    fleet.wait_for_line("hangs").await;
    for _ in 0..3 {
        let called = fleet.run(&["mcp", "call", "other", "quick"]).await;
        called.assert_code(0);
        assert_contains(&called.stdout, &["quick"]);
    }
    let hangs = std::fs::read_to_string(fleet.path("hangs")).expect("a side effect");
    assert_eq!(hangs, "once\n", "both servers share one call");
}

#[tokio::test]
async fn unknown_queue_of_servers_file_fails_the_start() {
    let fleet = Fleet::new();
    fleet.write("server.py", SERVER);
    let servers = json!({"one": server(&fleet, &json!({"queue": "slow"}))});
    fleet.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    let start = async |program: &str, arguments: &[&str]| {
        let mut command = fleet.program_without_bus(program);
        command.args(arguments).env("ROCKBOT_MCP__CONFIG", "mcp.json");
        Running::start(command).wait().await
    };
    let expected = [r#"server "one": queue "slow" is unknown"#, "[handler.queues]"];
    for (program, arguments) in
        [("rockbot-mcp-bridge", &["--check-config"][..]), ("rockbot", &["mcp", "list"])]
    {
        let refused = start(program, arguments).await;
        refused.assert_code(64);
        assert_contains(&refused.stderr, &expected);
    }
    let file = json!({"queues": {"slow": {"concurrent": 2}}, "mcpServers": servers});
    fleet.write("mcp.json", &file.to_string());
    start("rockbot-mcp-bridge", &["--check-config"]).await.assert_code(0);
    start("rockbot", &["mcp", "list"]).await.assert_code(0);
    // The same kind of queue in TOML.
    fleet.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    let config = fleet.write("bridge.toml", "[handler.queues.slow]\nconcurrency = 2\n");
    let config = config.to_str().expect("a path");
    start("rockbot-mcp-bridge", &["--check-config", "--config", config]).await.assert_code(0);
}

/// Calls `hang` of `hung` servers until the bridge runs no more of their calls, and then `quick` of another.
async fn check_hung_servers(hung: usize) {
    const CONCURRENCY: usize = 32;
    let fleet = Fleet::new();
    let names: Vec<_> = (0..hung).map(|number| format!("hung{number}")).collect();
    let mut servers = json!({"other": server(&fleet, &json!({}))});
    for name in &names {
        servers[name] = server(&fleet, &json!({"requestTimeoutMs": 300_000}));
    }
    let concurrency = CONCURRENCY.to_string();
    let settings = [("ROCKBOT_HANDLER__CONCURRENCY", concurrency.as_str())];
    let _bridge = bridge(&fleet, &json!({"mcpServers": servers}), &settings).await;
    let gateway = gateway(&fleet, "hanging").await;
    let index = gateway.index();
    let all_known = || names.iter().all(|name| index.borrow().get(name).is_some());
    wait_until("the servers", || all_known() && index.borrow().get("other").is_some()).await;
    let caller = Caller::new(fleet.bus(|_| {}).await, Duration::from_secs(300));
    let mut calls = tokio::task::JoinSet::new();
    for name in names.iter().flat_map(|name| std::iter::repeat_n(name, CONCURRENCY)) {
        let (gateway, name) = (gateway.clone(), name.clone());
        let context = caller.context("hang", Duration::from_secs(300));
        calls.spawn(async move { gateway.call(&name, "hang", json!({}), &context).await });
    }
    // Half of the calls are common, and at least one is reserved for each server.
    let hangs = || std::fs::read_to_string(fleet.path("hangs")).unwrap_or_default().lines().count();
    wait_until("the hung calls", || hangs() >= hung.max(CONCURRENCY / 2)).await;
    for _ in 0..5 {
        let called = fleet.run(&["mcp", "call", "other", "quick"]).await;
        called.assert_code(0);
        assert_contains(&called.stdout, &["quick"]);
    }
    assert!(hangs() < CONCURRENCY, "hung servers took the reserved call of another");
    calls.abort_all();
}

#[tokio::test]
async fn two_hung_servers_leave_calls_for_others() {
    check_hung_servers(2).await;
}

#[tokio::test]
async fn five_hung_servers_leave_calls_for_others() {
    check_hung_servers(5).await;
}

#[tokio::test]
async fn common_settings_limit_and_trace_calls() {
    let fleet = Fleet::new();
    let file = json!({"toolTimeout": 500, "traceMCP": true,
        "mcpServers": {"one": server(&fleet, &json!({}))}});
    let mut bridge = bridge(&fleet, &file, &[]).await;
    let hung = fleet.run(&["--json", "mcp", "call", "--timeout", "60", "one", "hang"]).await;
    hung.assert_code(75);
    assert_eq!(hung.json()["code"], "timeout");
    fleet.run(&["mcp", "call", "one", "quick"]).await.assert_code(0);
    bridge.expect_log("quick").await;
    let log = bridge.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("MCP request finished")).collect();
    let has =
        |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["server=one", "connect"]), "{log}");
    assert!(has(&["server=one", "tools/list", "ok"]), "{log}");
    assert!(has(&["tools/call", "received_bytes=5"]), "{log}");
}

/// Script of a model that calls a tool of a server by its own name.
const CALLS_BY_NAME: &str = r#"
[[turn]]
[[turn.call]]
name = "open__quick"
arguments = {}

[[turn]]
text = "It said {{result.open__quick}}"
"#;

#[tokio::test]
async fn exposure_of_servers_file_offers_tools() {
    let fleet = Fleet::new();
    fleet.write("script.toml", CALLS_BY_NAME);
    let file = json!({"mcpServers": {"open": server(&fleet, &json!({"exposure": "eager"})),
        "shut": server(&fleet, &json!({"exposure": "off"}))}});
    let _bridge = bridge(&fleet, &file, &[]).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let (_agent, chat) = fleet.chat_with(agent).await;
    assert_contains(&chat.stdout, &["It said quick"]);
}

#[tokio::test]
async fn large_result_of_server_is_read_through_handler() {
    let fleet = Fleet::new();
    let file = json!({"mcpServers": {"one": server(&fleet, &json!({}))}});
    let _bridge = bridge(&fleet, &file, &[]).await;
    let _handler = fleet.handler("handler-1").await;
    let gateway = gateway(&fleet, "caller").await;
    let index = gateway.index();
    wait_until("the server", || index.borrow().get("one").is_some()).await;
    let key = rockbot_contracts::topology::tool_invoke();
    let bus = fleet.bus(|_| {}).await;
    let caller = Caller::with_tools("caller", bus, Duration::from_secs(60), [("tool_output", key)]);
    let mut context = caller.context("large", Duration::from_secs(60));
    let large = gateway.call("one", "large", json!({}), &context).await.expect("a result");
    let text = large.to_text();
    assert!(text.len() < 6000, "{} bytes", text.len());
    let facts: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let facts = &facts["tool_output"];
    assert_eq!(facts["lines"], 45000);
    let arguments = json!({"handle": facts["handle"], "mode": "lines", "from": 44001, "count": 1});
    context.tool_name = "tool_output".into();
    context.tool_call_id = rockbot_contracts::ToolCallId::generate();
    let read = caller.execute(context, &arguments).await.expect("a result");
    assert_contains(&read.to_text(), &["line 44000 of the large result"]);
}
