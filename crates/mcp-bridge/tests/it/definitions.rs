//! Definitions that are unusable, outdated or hostile: each costs only its own tool.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_mcp_bridge::BridgeOptions;
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::{GatewayFixture, context};

fn server() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/definitions.py");
    json!({"odd": {"command": "python3", "args": [script]}})
}

#[tokio::test]
async fn unusable_definition_costs_only_its_tool() {
    let fixture = GatewayFixture::new(BridgeOptions::default(), server()).await;
    let status = fixture.bridge.servers().remove(0);
    assert_eq!(status.tools, 3, "rejected tools are not counted");
    for (name, gateway) in &fixture.gateways {
        let summary = gateway.index().borrow().get("odd").expect("a server").clone();
        assert_eq!(summary.tool_names, ["good", "nested", "old"], "{name}");
        let [exploding, external] = summary.rejected_tools.as_slice() else {
            panic!("{name}: {:?}", summary.rejected_tools)
        };
        assert!(exploding.name == "exploding" && exploding.reason.contains("expands"), "{name}");
        assert!(external.reason.contains("https://example.com/x.json"), "{name}");
        assert_eq!(summary.rejected_tools, status.rejected_tools);
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn unreadable_definition_costs_only_its_tool() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/definitions.py");
    let unreadable: [&[(&str, &str)]; 7] = [
        &[("missing", "inputSchema is missing")],
        &[("null", "inputSchema is missing or null")],
        &[("boolean", "inputSchema is not an object")],
        &[("5", "name is missing or not a string")],
        &[("huge", "number out of range")],
        &[("deep", "nests deeper than 127 levels of JSON")],
        &[("missing", ""), ("null", ""), ("boolean", ""), ("5", ""), ("huge", ""), ("deep", "")],
    ];
    for (case, expected) in unreadable.iter().enumerate() {
        let server = json!({"command": "python3", "args": [script, case.to_string()]});
        let fixture = GatewayFixture::new(BridgeOptions::default(), json!({"odd": server})).await;
        let status = fixture.bridge.servers().remove(0);
        assert_eq!((status.tools, status.tools_left_out), (1, expected.len()), "{case}");
        for (gateway_name, gateway) in &fixture.gateways {
            let summary = gateway.index().borrow().get("odd").expect("a server").clone();
            assert_eq!(summary.tool_names, ["good"], "{gateway_name}");
            assert_eq!(summary.rejected_tools.len(), expected.len(), "{gateway_name}");
            for (tool, (name, part)) in summary.rejected_tools.iter().zip(*expected) {
                assert_eq!(tool.name, *name);
                assert!(tool.reason.contains(part), "{gateway_name}: {tool:?}");
            }
            let context = context("good");
            let called = gateway.call("odd", "good", json!({}), &context);
            within_timeout("the call", called).await.expect("a result");
        }
        fixture.shut_down().await;
    }
}

#[tokio::test]
async fn arguments_are_validated_within_limits() {
    let fixture = GatewayFixture::new(BridgeOptions::default(), server()).await;
    for (name, gateway) in &fixture.gateways {
        let call = async |tool: &str, arguments: Value| {
            let context = context(tool);
            let call = gateway.call("odd", tool, arguments, &context);
            within_timeout(tool, call).await
        };
        let started = Instant::now();
        let deep = (0..100).fold(json!({}), |inner, _| json!({"x": inner}));
        let failure = call("nested", deep).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::InvalidArguments, "{name}");
        assert_eq!(failure.executed(), Executed::No, "{name}");
        assert!(started.elapsed() < Duration::from_secs(10), "{name}: {:?}", started.elapsed());
        for invalid in [json!({"n": 1}), json!({})] {
            let failure = call("old", invalid).await.unwrap_err();
            assert_eq!(failure.code(), ToolErrorCode::InvalidArguments, "{name}");
        }
        call("old", json!({"n": 2})).await.expect("valid arguments");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn results_have_no_hidden_text() {
    let fixture = GatewayFixture::new(BridgeOptions::default(), server()).await;
    for (name, gateway) in &fixture.gateways {
        let result =
            gateway.call("odd", "good", json!({}), &context("good")).await.expect("a result");
        let content = json!(result.content);
        assert_eq!(content[0]["text"], "red", "{name}");
        assert_eq!((&content[1]["uri"], &content[1]["text"]), (&json!("x:red"), &json!("red")));
    }
    fixture.shut_down().await;
}
