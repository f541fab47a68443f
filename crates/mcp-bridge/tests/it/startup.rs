//! Servers that start in unusual ways.

use std::sync::Arc;

use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServerStatus};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use serde_json::{Value, json};

use crate::{fixture::servers_file, remote::loopback};

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
async fn tool_that_requires_a_task_is_not_offered() {
    let (bridge, status) = settled(program("plain")).await;
    assert!(status.ready, "{status:?}");
    assert!(bridge.registry_name("clock", "now").is_some());
    assert!(bridge.registry_name("clock", "task").is_none());
    bridge.stop().await;
}
