//! Clients of other authors over HTTP.

use std::process::Stdio;

use rockbot_testkit::{McpPeer, fixture::within_timeout};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::fixture::{Handler, client};

/// Steps that every client of other authors takes.
fn steps() -> Value {
    json!([
        {"list": "tools"},
        {"call": "echo", "arguments": {"text": "hello"}},
        {"call": "fail"},
        {"call": "count", "meta": {"rockbot/callId": "one"}},
        {"call": "count", "meta": {"rockbot/callId": "one"}},
        {"call": "missing"},
        {"call": "chatty", "afterProgress": {"count": 3, "call": "release"}},
        {"call": "huge"},
        {"list": "resources"},
        {"list": "prompts"},
        {"prompt": "test-guide"},
    ])
}

/// Runs the steps with a client, and checks their results.
async fn check(peer: McpPeer, library: &str, era: &str) {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http_for(client("peer")).await;
    let results = run(peer, &[library, era, &http.url, &steps().to_string()]).await;
    let results = results.as_array().unwrap();
    let [tools, echo, fail, one, again, missing, chatty, huge, resources, prompts, prompt] =
        results.as_slice()
    else {
        panic!("{results:?}")
    };
    let result = |step: &Value| step["result"].clone();
    let text = |step: &Value| result(step)["content"][0]["text"].as_str().unwrap().to_owned();
    let found = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(found["annotations"]["readOnlyHint"], true, "{found}");
    assert_eq!(text(echo), "hello");
    assert_eq!(result(fail)["isError"], true, "{fail}");
    assert_eq!(result(fail)["structuredContent"]["error"]["executed"], "yes", "{fail}");
    assert_eq!((text(one), text(again)), ("1".to_owned(), "1".to_owned()));
    assert!(missing["error"].as_str().unwrap().contains("unknown tool"), "{missing}");
    assert_eq!(text(chatty), "whole");
    assert_eq!(chatty["progress"], json!(["step 1", "step 2", "step 3"]), "{chatty}");
    assert!(text(huge).starts_with("{\"tool_output\""), "{huge}");
    let link = result(huge)["content"][1].clone();
    assert_eq!(link["type"], "resource_link", "{huge}");
    assert_eq!(resources[0]["uri"], link["uri"], "{resources}");
    assert_eq!(prompts[0]["name"], "test-guide");
    assert_eq!(prompt["messages"][0]["content"]["text"], "# Tests", "{prompt}");

    let uri = format!("{}?from=0&count=6", link["uri"].as_str().unwrap());
    let read = json!([{"read": uri}]).to_string();
    let read = run(peer, &[library, era, &http.url, &read]).await;
    assert_eq!(read[0][0]["text"], "line 0", "{read}");
}

/// Runs a program until it exits, and returns the JSON that it printed.
async fn run(peer: McpPeer, arguments: &[&str]) -> Value {
    let (program, fixed) = peer.command();
    let run = Command::new(program)
        .args(fixed)
        .args(arguments)
        .env("HOME", std::env::temp_dir())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within_timeout("the end of the client", run).await.unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}\n{stderr}"))
}

#[tokio::test]
async fn official_python_sdk_works_in_both_eras() {
    check(McpPeer::ClientPython, "mcp", "legacy").await;
    check(McpPeer::ClientPython, "mcp", "2026-07-28").await;
}

#[tokio::test]
async fn fastmcp_client_works_in_both_eras() {
    check(McpPeer::ClientPython, "fastmcp", "legacy").await;
    check(McpPeer::ClientPython, "fastmcp", "2026-07-28").await;
}

#[tokio::test]
async fn official_typescript_sdk_works_in_both_versions_and_eras() {
    check(McpPeer::ClientTypeScript, "sdk", "legacy").await;
    check(McpPeer::ClientTypeScript, "client", "legacy").await;
    check(McpPeer::ClientTypeScript, "client", "2026-07-28").await;
}

#[tokio::test]
async fn inspector_lists_and_calls_tools() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http_for(client("peer")).await;
    let inspect = async |method: &[&str]| {
        let mut arguments = vec![http.url.as_str(), "--transport", "http", "--method"];
        arguments.extend(method);
        run(McpPeer::Inspector, &arguments).await
    };
    let tools = inspect(&["tools/list"]).await;
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"));
    let call = ["tools/call", "--tool-name", "echo", "--tool-arg", "text=hello"];
    assert_eq!(inspect(&call).await["content"][0]["text"], "hello");
    let prompt = inspect(&["prompts/get", "--prompt-name", "test-guide"]).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "# Tests");
}
