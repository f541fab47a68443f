//! Commands that start an MCP server for one request, many times. `ROCKBOT_TEST_ENDURANCE=1` runs 200 of them, as
//! documented in docs/mcp.md.

use std::env;

use serde_json::json;

use crate::{
    fleet::{Fleet, assert_contains},
    mcp_remote::{ENDPOINT, clock},
    process::Running,
    site::Request,
    stdio_server,
};

/// Returns the number of commands.
fn runs() -> usize {
    if env::var_os("ROCKBOT_TEST_ENDURANCE").is_some() { 200 } else { 20 }
}

#[tokio::test]
async fn every_command_reaches_its_server() {
    let fleet = Fleet::new();
    let remote = clock().await;
    let program = stdio_server::entry(&json!({"now": stdio_server::text("noon")}));
    let servers = json!({"program": program, "remote": {"url": remote.url(ENDPOINT)}});
    fleet.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    let kinds = [
        (["call", "program", "now"], "noon"),
        (["describe", "remote", "now"], "arguments"),
        (["call", "remote", "now"], "noon"),
        (["describe", "program", "now"], "arguments"),
    ];
    let mut failed = Vec::new();
    for (number, (arguments, expected)) in (1..=runs()).zip(kinds.into_iter().cycle()) {
        let mut command = fleet.program_without_bus("rockbot");
        command.args(["--mcp", "mcp.json", "mcp"]).args(arguments);
        let exit = Running::start(command).wait().await;
        if exit.code == Some(0) {
            assert_contains(&exit.stdout, &[expected]);
        } else {
            failed.push((number, arguments, exit));
        }
    }
    assert!(failed.is_empty(), "{} of {} commands failed: {failed:#?}", failed.len(), runs());
    let requests = remote.requests(ENDPOINT);
    let is_call =
        |request: &&Request| request.method() == "POST" && request.json()["method"] == "tools/call";
    assert_eq!(requests.iter().filter(is_call).count(), runs() / 4);
}
