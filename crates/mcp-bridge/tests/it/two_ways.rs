//! Without a bus and over one, a bridge behaves the same.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    Executed, ToolErrorCode,
    mcp::{McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest},
};
use rockbot_mcp_bridge::{BridgeOptions, QueueConfig, RegistrationPolicy};
use rockbot_testkit::{
    fixture::{wait_until, within_timeout},
    mcp_peers::McpPeer,
};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::ToolUpdate;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use crate::bed::{Ways, context, misbehaving};

async fn ways() -> Ways {
    Ways::to(BridgeOptions::default(), json!({"Odd": misbehaving()})).await
}

async fn text(gateway: &dyn McpGateway, server: &str, tool: &str, arguments: Value) -> String {
    let said = gateway.call(server, tool, arguments, &context(tool)).await;
    said.unwrap_or_else(|failure| panic!("{tool}: {failure}")).to_text().into_owned()
}

#[tokio::test]
async fn calls_and_their_failures_are_the_same() {
    let ways = ways().await;
    for (way, gateway) in &ways.gateways {
        let gateway = gateway.as_ref();
        assert_eq!(text(gateway, "oDD", "echo", json!({"a": 1})).await, "{\"a\": 1}", "{way}");
        let said = gateway.call("odd", "fail", json!({}), &context("fail")).await.unwrap();
        assert!(said.is_error && said.to_text() == "it did not work", "{way}");
        for (tool, code, executed) in [
            ("refuse", ToolErrorCode::InvalidArguments, Executed::No),
            ("Echo", ToolErrorCode::ToolNotFound, Executed::No),
            ("garbage", ToolErrorCode::ExecutionFailed, Executed::Yes),
            ("die", ToolErrorCode::OutcomeUnknown, Executed::Unknown),
        ] {
            let failure = gateway.call("odd", tool, json!({}), &context(tool)).await.unwrap_err();
            assert_eq!((failure.code(), failure.executed()), (code, executed), "{way}: {tool}");
        }
        // The one after it waits for the next process.
        assert_eq!(text(gateway, "odd", "echo", json!({})).await, "{}", "{way}");
        let mut hasty = context("slow");
        hasty.deadline = Instant::now() + Duration::from_millis(300);
        let failure = gateway.call("odd", "slow", json!({}), &hasty).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Timeout, "{way}");
        assert_ne!(failure.executed(), Executed::No, "{way}: it had begun");
    }
    ways.end().await;
}

#[tokio::test]
async fn progress_and_cancel_pass_through() {
    let ways = ways().await;
    for (way, gateway) in &ways.gateways {
        let (sender, mut lines) = mpsc::channel(100);
        let mut watched = context("progress");
        watched.updates = Some(Arc::new(move |update| {
            if let ToolUpdate::Progress(line) = update {
                let _ = sender.try_send(line);
            }
        }));
        // Not so fast that lines that follow each other closely are told together.
        let steps = json!({"steps": 2, "pause": 0.4});
        gateway.call("odd", "progress", steps, &watched).await.unwrap();
        let line = lines.recv().await.unwrap();
        assert!(line.contains("of 5: step"), "{way}: {line}");

        let long = context("slow");
        let token = long.cancellation.clone();
        let running = {
            let gateway = gateway.clone();
            tokio::spawn(async move { gateway.call("odd", "slow", json!({}), &long).await })
        };
        // Answered only after the long one has begun: one reader, in order.
        text(gateway.as_ref(), "odd", "echo", json!({})).await;
        token.cancel();
        let failure = running.await.unwrap().unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Cancelled, "{way}");
    }
    ways.end().await;
}

#[tokio::test]
async fn kept_results_and_queues_are_shared() {
    let mut servers = json!({"Odd": misbehaving()});
    servers["Odd"]["cache"] = json!("1h");
    servers["Odd"]["toolsReadOnly"] = json!(["count"]);
    servers["Odd"]["queue"] = json!("one");
    let one = QueueConfig { concurrency: 1, waiting: Some(0), wait: None };
    let queues = [("one".to_owned(), one)].into();
    let ways = Ways::to(BridgeOptions { queues, ..BridgeOptions::default() }, servers).await;
    for (way, gateway) in &ways.gateways {
        let gateway = gateway.as_ref();
        // Each way has an agent of its own, so that nothing of the other's is kept for it.
        let first = text(gateway, "odd", "count", json!({})).await;
        assert_eq!(text(gateway, "odd", "count", json!({})).await, first, "{way}");
        let other = text(gateway, "odd", "count", json!({"way": way})).await;
        assert_ne!(other, first, "{way}: other arguments");
        let echoed = text(gateway, "odd", "echo", json!({"way": way})).await;
        assert!(echoed.contains(way), "what may change something is not kept");
    }
    let [(_, here), (_, there)] = &ways.gateways;
    let running = {
        let here = here.clone();
        tokio::spawn(async move { here.call("odd", "slow", json!({}), &context("slow")).await })
    };
    // On this thread the spawned call takes its place now.
    tokio::task::yield_now().await;
    let full = async {
        loop {
            let echo = context("echo");
            if let Err(failure) = there.call("odd", "echo", json!({}), &echo).await {
                return failure;
            }
        }
    };
    let failure = within_timeout("the queue is full", full).await;
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Overloaded, Executed::No));
    running.abort();
    let _ = running.await;
    ways.end().await;
}

#[tokio::test]
async fn servers_are_shown_added_and_removed() {
    let registration =
        RegistrationPolicy { allowed: true, commands: ["python3".to_owned()].into() };
    let options = BridgeOptions { registration, ..BridgeOptions::default() };
    let ways = Ways::to(options, json!({"Odd": misbehaving()})).await;
    for (way, gateway) in &ways.gateways {
        let details = |server: &str, tool: Option<&str>| {
            gateway.details(McpServerDetailsRequest {
                server_name: server.to_owned(),
                tool_name: tool.map(ToOwned::to_owned),
            })
        };
        assert_eq!(details("odd", None).await.unwrap().server.name, "Odd", "{way}");
        let one = details("ODD", Some("echo")).await.unwrap();
        assert_eq!(one.tools[0].model_name, "Odd__echo", "{way}");
        for (server, tool) in [("odd", Some("none")), ("even", None)] {
            let error = details(server, tool).await.unwrap_err();
            assert_eq!(error.code, McpManageErrorCode::NotFound, "{way}: {error}");
        }
        let request = |name: &str, command: &str| McpRegisterServerRequest {
            server_name: name.to_owned(),
            command: Some(command.to_owned()),
            arguments: vec![misbehaving()["args"][0].as_str().unwrap().to_owned()],
            url: None,
        };
        let error = gateway.register(request("new", "bash")).await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::NotPermitted, "{way}");
        let error = gateway.register(request("odd", "python3")).await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::Conflict, "{way}");
        gateway.register(request("new", "python3")).await.unwrap();
        let index = gateway.index();
        wait_until("the new server", || index.borrow().get("NEW").is_some()).await;
        assert_eq!(text(gateway.as_ref(), "new", "echo", json!({})).await, "{}", "{way}");
        let error = gateway.unregister("odd").await.unwrap_err();
        assert_eq!(error.code, McpManageErrorCode::NotPermitted, "{way}");
        gateway.unregister("New").await.unwrap();
        wait_until("its end", || index.borrow().get("new").is_none()).await;
    }
    ways.end().await;
}

#[tokio::test]
async fn pictures_and_structured_content_cross_the_bus() {
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"everything": {"command": program, "args": arguments}});
    let ways = Ways::to(BridgeOptions::default(), servers).await;
    for (tool, arguments) in [
        ("echo", json!({"message": "hello"})),
        ("get-tiny-image", json!({})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-resource-links", json!({"count": 3})),
    ] {
        let mut said = Vec::new();
        for (_, gateway) in &ways.gateways {
            let result =
                gateway.call("everything", tool, arguments.clone(), &context(tool)).await.unwrap();
            said.push((result.content, result.details, result.is_error));
        }
        assert_eq!(said[0], said[1], "{tool}");
    }
    assert!(ways.bridge.missing_required().is_empty());
    ways.end().await;
}
