//! Servers that start in unusual ways.

use std::{process::Command, sync::Arc};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServerStatus};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    fixture::{call_text, servers_file},
    remote::{http::serve, loopback},
};

/// Starts a bridge, and waits until its server has connected or failed once.
pub(crate) async fn settled(entry: Value) -> (Arc<Bridge>, ServerStatus) {
    // In a process, `main` does this.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let bridge = Bridge::new(BridgeOptions { dial: loopback(), ..BridgeOptions::default() });
    bridge.apply(servers_file(&json!({"clock": entry}))).await;
    let settled = bridge.wait_until_server_settled("Clock", TEST_TIMEOUT * 2);
    within_timeout("the settled server", settled).await;
    let status = bridge.servers().remove(0);
    (bridge, status)
}

pub(crate) fn program(mode: &str) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/startup.py");
    json!({"command": "python3", "args": [script, mode]})
}

#[tokio::test]
async fn handshake_follows_unusual_reply_to_probe() {
    for mode in ["result", "exits"] {
        let (bridge, status) = settled(program(mode)).await;
        assert!(status.ready, "{mode}: {status:?}");
        assert_eq!(status.protocol_version.as_deref(), Some("2025-11-25"), "{mode}");
        assert_eq!(call_text(&bridge, "clock", "now", json!({})).await, "noon", "{mode}");
        bridge.stop().await;
    }
}

#[test]
fn check_of_configuration_reports_servers_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    let check = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_rockbot-mcp-bridge"));
        program.arg("--check-config").env_clear();
        program.env("ROCKBOT_STORE__URL", "memory:").env("ROCKBOT_MCP__CONFIG", &file);
        let output = program.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, missing) = check();
    assert_eq!(code, Some(64), "{missing}");
    assert!(missing.contains("mcp.json: cannot read it"), "{missing}");
    let entries = json!({"toolTimeout": "soon", "queues": {"one": {"waiting": -1}},
        "mcpServers": {"odd": {"command": "x", "exposure": "some"}, "unset": {"command": "${NONE}"}}});
    std::fs::write(&file, entries.to_string()).unwrap();
    let (code, invalid) = check();
    assert_eq!(code, Some(64), "{invalid}");
    for part in [
        r#"mcp.json: server "odd": exposure must be one of"#,
        r#"mcp.json: server "unset": "#,
        "mcp.json: toolTimeout: ",
        r#"mcp.json: queue "one": "#,
    ] {
        assert!(invalid.contains(part), "{part}: {invalid}");
    }
    std::fs::write(&file, json!({"mcpServers": {"good": {"command": "x"}}}).to_string()).unwrap();
    assert_eq!(check(), (Some(0), String::new()));
}

#[tokio::test]
async fn last_output_of_program_is_in_the_reason() {
    let (bridge, status) = settled(program("broken")).await;
    let reason = status.reason.unwrap_or_default();
    assert!(reason.contains("ModuleNotFoundError: No module named 'clock'"), "{reason}");
    assert!(!reason.contains("::"), "types are not for people: {reason}");
    bridge.stop().await;
}

#[tokio::test]
async fn rejected_login_names_the_command() {
    async fn unauthorized() -> Response {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response()
    }
    let url = serve(Router::new().route("/mcp", post(unauthorized))).await + "/mcp";
    let (bridge, status) = settled(json!({"url": url})).await;
    let reason = status.reason.unwrap_or_default();
    assert!(reason.contains("the server requires authorization"), "{reason}");
    assert!(reason.contains("`rockbot mcp login clock`"), "{reason}");
    assert!(!reason.contains("::"), "types are not for people: {reason}");
    bridge.stop().await;
}

#[tokio::test]
async fn status_of_failing_server_is_in_the_reason() {
    for (status, name) in [
        (StatusCode::INTERNAL_SERVER_ERROR, "HTTP 500 Internal Server Error"),
        (StatusCode::BAD_GATEWAY, "HTTP 502 Bad Gateway"),
        (StatusCode::SERVICE_UNAVAILABLE, "HTTP 503 Service Unavailable"),
        (StatusCode::GATEWAY_TIMEOUT, "HTTP 504 Gateway Timeout"),
    ] {
        let url = serve(Router::new().route("/mcp", post(async move || status))).await + "/mcp";
        for entry in [json!({"url": url}), json!({"url": url, "type": "http"})] {
            let (bridge, status) = settled(entry).await;
            let reason = status.reason.unwrap_or_default();
            assert!(reason.contains(name) && reason.contains("log"), "{reason}");
            bridge.stop().await;
        }
    }
}

#[tokio::test]
async fn program_that_cannot_be_started_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    for (entry, name, remedy) in [
        (json!({"command": "no-such-uvx"}), "\"no-such-uvx\"", "not on the PATH; install it"),
        (json!({"command": "/no/such/npx"}), "\"/no/such/npx\"", "correct \"command\""),
        (json!({"command": "cat", "cwd": "/no/such/folder"}), "\"cat\"", "/no/such/folder"),
        (json!({"command": script}), "script\"", "make it executable"),
    ] {
        let (bridge, status) = settled(entry).await;
        let reason = status.reason.unwrap_or_default();
        assert!(reason.contains(name) && reason.contains(remedy), "{reason}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn tool_that_requires_a_task_is_not_offered_by_a_server_without_tasks() {
    let (bridge, status) = settled(program("result")).await;
    assert!(status.ready, "{status:?}");
    assert!(bridge.registry_name("clock", "now").is_some());
    assert!(bridge.registry_name("clock", "task").is_none());
    let rejected = status.rejected_tools.iter().find(|tool| tool.name == "task").unwrap();
    let reason =
        "it can only be called as a task, and the server does not offer the tasks of 2026-07-28";
    assert_eq!(rejected.reason, reason);
    bridge.stop().await;
}

#[tokio::test]
async fn server_that_keeps_ending_its_sessions_has_a_reason() {
    let (bridge, _) = settled(program("ends")).await;
    let ended = || {
        let reason = bridge.servers().remove(0).reason.unwrap_or_default();
        reason.contains("the server ended 3 sessions within 30s of their start")
    };
    wait_until("the reason", ended).await;
    bridge.stop().await;
}
