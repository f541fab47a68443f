//! What processes log about calls, and what models read about failed ones.

use rockbot_testkit::fixture::wait_until;
use serde_json::json;

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
    stdio_server,
};

/// Script of a model whose calls fail: one is stopped by the handler, and one is an error of its server.
const FAILS: &str = r#"
[[turn]]
[[turn.call]]
name = "bash"
arguments = { command = "sleep 60" }
[[turn.call]]
name = "crm__find"
arguments = {}

[[turn]]
text = "[{{result.0}}] [{{result.1}}]"
"#;

/// The level at which requests are logged too.
pub(crate) const LEVEL: (&str, &str) = ("ROCKBOT_LOG__LEVEL", "info,rockbot_tools=debug");

/// Asserts that a process logs the lines of a call.
pub(crate) async fn expect_lines(process: &Running, tool: &str, status: &str) {
    let tool = format!("tool=\"{tool}\"");
    let line = |message: &str| {
        let log = process.log();
        let line = log.lines().find(|line| line.contains(message) && line.contains(&tool));
        line.map(ToOwned::to_owned)
    };
    wait_until(&tool, || line("tool response").is_some()).await;
    let request = line("tool request").unwrap_or_else(|| panic!("{}", process.log()));
    assert_contains(&request, &["tool_call_id=", "chars_in="]);
    let status = format!("status=\"{status}\"");
    let expected = ["tool_call_id=", "elapsed_ms=", "chars_in=", "chars_out=", &status];
    assert_contains(&line("tool response").expect("found before"), &expected);
}

#[tokio::test]
async fn every_process_logs_request_and_response_of_a_call() {
    let fleet = Fleet::new();
    let failed = json!({"content": [{"type": "text", "text": "no leads"}], "isError": true});
    let servers = json!({"crm": stdio_server::entry(&json!({"find": failed}))});
    let bridge = fleet.bridge_with("bridge-1", &servers, &[LEVEL]).await;
    let settings = [LEVEL, ("ROCKBOT_HANDLER__TOOLS__BASH__TIMEOUT", "500ms")];
    let handler = fleet.handler_with("handler-1", &settings).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env(LEVEL.0, LEVEL.1)
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.write("script.toml", FAILS));
    let (agent, chat) = fleet.chat_with(agent).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["[(tool failed: timeout)] [(tool failed: no leads)]"]);
    expect_lines(&agent, "bash", "timeout").await;
    expect_lines(&handler, "bash", "timeout").await;
    expect_lines(&agent, "crm__find", "tool_error").await;
    expect_lines(&bridge, "crm__find", "tool_error").await;
    for log in [agent.log(), handler.log(), bridge.log()] {
        assert!(!log.contains("no leads") && !log.contains("sleep 60"), "content in a log:\n{log}");
    }
}
