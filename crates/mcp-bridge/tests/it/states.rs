//! States of servers, as bridges announce them.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::mcp::{McpConnection, McpServerState};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServersFile};
use rockbot_testkit::fixture::wait_until;
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::{Value, json};

use crate::fixture::{GatewayFixture, call, misbehaving_server, servers_file};

fn state(gateway: &dyn McpGateway, server: &str) -> Option<McpServerState> {
    let states = gateway.states();
    let states = states.borrow();
    states.iter().find(|report| report.state.name == server).map(|report| report.state.clone())
}

async fn wait_for(gateway: &Arc<dyn McpGateway>, server: &str, connection: McpConnection) {
    let reached = || state(gateway.as_ref(), server).is_some_and(|it| it.connection == connection);
    wait_until("the state", reached).await;
}

fn servers() -> Value {
    json!({"odd": misbehaving_server()})
}

#[tokio::test]
async fn every_server_has_a_state_with_its_reason() {
    let fixture = GatewayFixture::new(BridgeOptions::default(), servers()).await;
    let file = servers_file(&json!({
        "odd": misbehaving_server(),
        "absent": {"command": "/no/such/program", "required": true},
        "broken": {"command": "x", "url": "https://x"},
    }));
    fixture.bridge.apply(file).await;
    for (label, gateway) in &fixture.gateways {
        wait_for(gateway, "absent", McpConnection::Failed).await;
        wait_for(gateway, "broken", McpConnection::Invalid).await;
        wait_for(gateway, "odd", McpConnection::Connected).await;
        let odd = state(gateway.as_ref(), "odd").unwrap();
        assert!(odd.tools_offered > 10 && odd.tools_left_out == 0, "{label}: {odd:?}");
        assert_eq!(odd.protocol_version.as_deref(), Some("2025-11-25"), "{label}");
        assert!(odd.since_ms > 0 && odd.transport == "stdio", "{label}: {odd:?}");
        let absent = state(gateway.as_ref(), "absent").unwrap();
        let reason = absent.reason.unwrap();
        assert!(absent.required && reason.contains("cannot start its program"), "{reason}");
        let broken = state(gateway.as_ref(), "broken").unwrap();
        assert!(broken.reason.unwrap().contains("both a command and a url"), "{label}");
        let reports = gateway.states();
        let bridge = reports.borrow()[0].bridge.clone();
        let expected = (*label == "over the bus").then(|| "bridge-0".to_owned());
        assert_eq!(bridge.map(|bridge| bridge.to_string()), expected);
    }
    fixture.bridge.apply(servers_file(&servers())).await;
    for (label, gateway) in &fixture.gateways {
        let gone = || gateway.states().borrow().len() == 1;
        wait_until("the removal", gone).await;
        assert!(state(gateway.as_ref(), "odd").is_some(), "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn restarts_are_counted() {
    let fixture = GatewayFixture::new(BridgeOptions::default(), servers()).await;
    assert!(call(&fixture.bridge, "odd", "die", json!({})).await.is_err());
    for (_, gateway) in &fixture.gateways {
        let restarted = || {
            let odd = state(gateway.as_ref(), "odd");
            odd.is_some_and(|odd| odd.restarts == 1 && odd.connection == McpConnection::Connected)
        };
        wait_until("the restart", restarted).await;
    }
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_server_has_its_published_state() {
    for _ in 0..20 {
        let bridge = Bridge::new(BridgeOptions::default());
        bridge.apply(servers_file(&json!({"gone": {"command": "no-such-program"}}))).await;
        bridge.wait_until_settled(Duration::from_secs(30)).await;
        let gone = state(bridge.as_ref(), "gone").expect("a state");
        assert_eq!(gone.connection, McpConnection::Failed);
        assert!(gone.reason.is_some_and(|reason| reason.contains("cannot start its program")));
        bridge.stop().await;
    }
}

#[tokio::test]
async fn reason_has_no_secrets_of_the_entry() {
    let text = json!({"mcpServers": {"gone": {
        "command": "sh",
        "args": ["-c", "echo \"own $T_OWN, argument $0\" >&2; exit 1", "--key=${T_ARG}"],
        "env": {"T_OWN": "literal-of-the-entry"},
    }}});
    let lookup = |name: &str| (name == "T_ARG").then(|| "value-from-outside".to_owned());
    let bridge = Bridge::new(BridgeOptions::default());
    bridge.apply(ServersFile::parse(text.to_string().as_bytes(), lookup).unwrap()).await;
    bridge.wait_until_settled(Duration::from_secs(30)).await;
    let reason = bridge.servers().remove(0).reason.unwrap();
    assert!(reason.contains("own [secret], argument --key=[secret]"), "{reason}");
    bridge.stop().await;
}

#[tokio::test]
async fn invalid_required_server_is_missing() {
    let bridge = Bridge::new(BridgeOptions::default());
    assert!(!bridge.has_applied_file());
    let broken = json!({"needed": {"command": "x", "url": "https://x", "required": true},
        "spare": {"command": "x", "url": "https://x"}});
    bridge.apply(servers_file(&broken)).await;
    bridge.wait_until_settled(Duration::from_secs(5)).await;
    assert!(bridge.has_applied_file());
    assert_eq!(bridge.missing_required(), ["needed"]);
    bridge.apply(servers_file(&json!({}))).await;
    assert!(bridge.missing_required().is_empty());
    bridge.stop().await;
}
