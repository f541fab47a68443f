//! A bridge behaves identically in process and over the bus.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    Executed, ToolErrorCode,
    mcp::{McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest},
};
use rockbot_mcp_bridge::{BridgeOptions, RegistrationPolicy};
use rockbot_testkit::{
    fixture::{wait_until, within_timeout},
    mcp_servers::McpPeer,
};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{
    ToolUpdate,
    limits::queue::{Queue, QueueRules},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use crate::fixture::{GatewayFixture, context, misbehaving_server};

async fn fixture() -> GatewayFixture {
    GatewayFixture::new(BridgeOptions::default(), json!({"Odd": misbehaving_server()})).await
}

async fn text(gateway: &dyn McpGateway, server: &str, tool: &str, arguments: Value) -> String {
    let result = gateway.call(server, tool, arguments, &context(tool)).await;
    result.unwrap_or_else(|failure| panic!("{tool}: {failure}")).to_text().into_owned()
}

#[tokio::test]
async fn calls_and_failures_are_identical() {
    let fixture = fixture().await;
    for (label, gateway) in &fixture.gateways {
        let gateway = gateway.as_ref();
        assert_eq!(text(gateway, "oDD", "echo", json!({"a": 1})).await, "{\"a\": 1}", "{label}");
        let failed = gateway.call("odd", "fail", json!({}), &context("fail")).await.unwrap();
        assert!(failed.is_error && failed.to_text() == "it did not work", "{label}");
        for (tool, code, executed) in [
            ("refuse", ToolErrorCode::InvalidArguments, Executed::No),
            ("Echo", ToolErrorCode::ToolNotFound, Executed::No),
            ("garbage", ToolErrorCode::ExecutionFailed, Executed::Yes),
            ("die", ToolErrorCode::OutcomeUnknown, Executed::Unknown),
        ] {
            let failure = gateway.call("odd", tool, json!({}), &context(tool)).await.unwrap_err();
            assert_eq!((failure.code(), failure.executed()), (code, executed), "{label}: {tool}");
        }
        // The next call waits for the restarted program.
        assert_eq!(text(gateway, "odd", "echo", json!({})).await, "{}", "{label}");
        let mut short = context("slow");
        short.deadline = Instant::now() + Duration::from_millis(300);
        let failure = gateway.call("odd", "slow", json!({}), &short).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Timeout, "{label}");
        assert_ne!(failure.executed(), Executed::No, "{label}: it was running");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn progress_and_cancellation_cross_the_bus() {
    let fixture = fixture().await;
    for (label, gateway) in &fixture.gateways {
        let (sender, mut lines) = mpsc::channel(100);
        let mut watched = context("progress");
        watched.updates = Some(Arc::new(move |update| {
            if let ToolUpdate::Progress(line) = update {
                let _ = sender.try_send(line);
            }
        }));
        // Slow enough that progress messages are not coalesced.
        let steps = json!({"steps": 2, "pause": 0.4});
        gateway.call("odd", "progress", steps, &watched).await.unwrap();
        let line = lines.recv().await.unwrap();
        assert!(line.contains("of 5: step"), "{label}: {line}");

        let long = context("slow");
        let token = long.cancellation.clone();
        let running = {
            let gateway = gateway.clone();
            tokio::spawn(async move { gateway.call("odd", "slow", json!({}), &long).await })
        };
        // The server reads in order, so the long call runs when this one returns.
        text(gateway.as_ref(), "odd", "echo", json!({})).await;
        token.cancel();
        let failure = running.await.unwrap().unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Cancelled, "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn cached_results_and_queues_are_shared() {
    let mut servers = json!({"Odd": misbehaving_server()});
    servers["Odd"]["cache"] = json!("1h");
    servers["Odd"]["toolsReadOnly"] = json!(["count"]);
    servers["Odd"]["queue"] = json!("one");
    let rules = QueueRules { running: 1, waiting: 0, ..QueueRules::default() };
    let queues = [("one".to_owned(), Queue::new("one", rules))].into();
    let fixture =
        GatewayFixture::new(BridgeOptions { queues, ..BridgeOptions::default() }, servers).await;
    for (label, gateway) in &fixture.gateways {
        let gateway = gateway.as_ref();
        let first = text(gateway, "odd", "count", json!({})).await;
        assert_eq!(text(gateway, "odd", "count", json!({})).await, first, "{label}");
        let other = text(gateway, "odd", "count", json!({"label": label})).await;
        assert_ne!(other, first, "{label}: other arguments");
        let echoed = text(gateway, "odd", "echo", json!({"label": label})).await;
        assert!(echoed.contains(label), "results of tools with side effects are not cached");
    }
    let [(_, local), (_, remote)] = &fixture.gateways;
    let running = {
        let local = local.clone();
        tokio::spawn(async move { local.call("odd", "slow", json!({}), &context("slow")).await })
    };
    // The runtime has one thread: the spawned call takes the permit now.
    tokio::task::yield_now().await;
    let full = async {
        loop {
            let echo = context("echo");
            if let Err(failure) = remote.call("odd", "echo", json!({}), &echo).await {
                return failure;
            }
        }
    };
    let failure = within_timeout("the full queue", full).await;
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Overloaded, Executed::No));
    running.abort();
    let _ = running.await;
    fixture.shut_down().await;
}

#[tokio::test]
async fn servers_are_described_added_and_removed() {
    let registration =
        RegistrationPolicy { allowed: true, commands: ["python3".to_owned()].into() };
    let options = BridgeOptions { registration, ..BridgeOptions::default() };
    let fixture = GatewayFixture::new(options, json!({"Odd": misbehaving_server()})).await;
    for (label, gateway) in &fixture.gateways {
        let details = |server: &str, tool: Option<&str>| {
            gateway.details(McpServerDetailsRequest {
                server_name: server.to_owned(),
                tool_name: tool.map(ToOwned::to_owned),
                after: None,
            })
        };
        assert_eq!(details("odd", None).await.unwrap().server.name, "Odd", "{label}");
        let one = details("ODD", Some("echo")).await.unwrap();
        assert_eq!(one.tools[0].model_name, "Odd__echo", "{label}");
        for (server, tool) in [("odd", Some("none")), ("even", None)] {
            let error = details(server, tool).await.unwrap_err();
            assert_eq!(error.code, McpManageErrorCode::NotFound, "{label}: {error}");
        }
        let request = |name: &str, command: &str| McpRegisterServerRequest {
            server_name: name.to_owned(),
            command: Some(command.to_owned()),
            arguments: vec![misbehaving_server()["args"][0].as_str().unwrap().to_owned()],
            url: None,
        };
        let error = gateway.register(request("new", "bash")).await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::NotPermitted, "{label}");
        let error = gateway.register(request("odd", "python3")).await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::Conflict, "{label}");
        gateway.register(request("new", "python3")).await.unwrap();
        let index = gateway.index();
        wait_until("the new server", || index.borrow().get("NEW").is_some()).await;
        assert_eq!(text(gateway.as_ref(), "new", "echo", json!({})).await, "{}", "{label}");
        let error = gateway.unregister("odd").await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::NotPermitted, "{label}");
        gateway.unregister("New").await.unwrap();
        wait_until("the removal", || index.borrow().get("new").is_none()).await;
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn images_and_structured_content_cross_the_bus() {
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"everything": {"command": program, "args": arguments}});
    let fixture = GatewayFixture::new(BridgeOptions::default(), servers).await;
    for (tool, arguments) in [
        ("echo", json!({"message": "hello"})),
        ("get-tiny-image", json!({})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-resource-links", json!({"count": 3})),
    ] {
        let mut results = Vec::new();
        for (_, gateway) in &fixture.gateways {
            let result =
                gateway.call("everything", tool, arguments.clone(), &context(tool)).await.unwrap();
            results.push((result.content, result.details, result.is_error));
        }
        assert_eq!(results[0], results[1], "{tool}");
    }
    assert!(fixture.bridge.missing_required().is_empty());
    fixture.shut_down().await;
}
