//! Faults of servers: each fails only its own call, with the correct `executed` value.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{ToolContext, ToolUpdate};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::fixture::{bridge, call, call_text, context, misbehaving_server};

#[tokio::test]
async fn call_failures_keep_their_codes() {
    let bridge = bridge(json!({"Odd": misbehaving_server()})).await;
    assert_eq!(
        call_text(&bridge, "odd", "echo", json!({"b": 1, "a": "ä"})).await,
        "{\"a\": \"\\u00e4\", \"b\": 1}"
    );
    let failed = call(&bridge, "ODD", "fail", json!({})).await.unwrap();
    assert!(failed.is_error && failed.to_text() == "it did not work");
    let refused = call(&bridge, "odd", "refuse", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), ToolErrorCode::InvalidArguments);
    let missing = call(&bridge, "odd", "ECHO", json!({})).await.unwrap_err();
    assert_eq!(missing.code(), ToolErrorCode::ToolNotFound, "tools are matched exactly");
    let unknown = call(&bridge, "even", "echo", json!({})).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.executed()), (ToolErrorCode::Unavailable, Executed::No));
    bridge.stop().await;
}

#[tokio::test]
async fn unreadable_response_fails_only_its_call() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    let concurrent = {
        let bridge = bridge.clone();
        tokio::spawn(
            async move { call_text(&bridge, "odd", "slow", json!({"seconds": 1.5})).await },
        )
    };
    for (tool, expected) in [("garbage", "not valid JSON-RPC"), ("huge", "bytes")] {
        // The `huge` response is one line, far over the limit of 16 MiB.
        let failure = call(&bridge, "odd", tool, json!({"megabytes": 200})).await.unwrap_err();
        assert!(failure.to_string().contains(expected), "{tool}: {failure}");
        assert_eq!(failure.executed(), Executed::Yes);
    }
    assert_eq!(call_text(&bridge, "odd", "wrong", json!({})).await, "for this request");
    assert_eq!(within_timeout("the concurrent call", concurrent).await.unwrap(), "done");
    bridge.stop().await;
}

#[tokio::test]
async fn crashed_server_leaves_outcome_unknown_and_restarts() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    for tool in ["die", "half"] {
        let first = call_text(&bridge, "odd", "pid", json!({})).await;
        let failure = call(&bridge, "odd", tool, json!({})).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{tool}: {failure}");
        assert!(bridge.registry_name("odd", "echo").is_some(), "its tools stay registered");
        // The next call waits for the next process.
        let second = call_text(&bridge, "odd", "pid", json!({})).await;
        assert_ne!(first, second);
    }
    bridge.stop().await;
}

#[tokio::test]
async fn progress_resets_idle_timeout() {
    let mut entry = misbehaving_server();
    entry["requestTimeoutMs"] = json!(1500);
    let folder = tempfile::tempdir().unwrap();
    let cancels = folder.path().join("cancels");
    entry["env"] = json!({"CANCELS": cancels});
    let bridge = bridge(json!({"odd": entry})).await;
    let failure = call(&bridge, "odd", "silent", json!({})).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Unknown));
    assert!(!failure.is_retryable(), "it may have run");
    let cancelled =
        || std::fs::read_to_string(&cancels).is_ok_and(|text| text.lines().count() == 1);
    wait_until("the cancellation at the server", cancelled).await;
    // Ten steps of 300 ms exceed the timeout of 1500 ms, but no single step does.
    let steps = json!({"steps": 10, "pause": 0.3});
    assert_eq!(call_text(&bridge, "odd", "progress", steps).await, "done");
    assert!(bridge.registry_name("odd", "silent").is_some(), "a timeout unregisters no tools");
    bridge.stop().await;
}

#[tokio::test]
async fn deadline_and_cancellation_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let cancels = folder.path().join("cancels");
    let mut entry = misbehaving_server();
    entry["env"] = json!({"CANCELS": cancels});
    let bridge = bridge(json!({"odd": entry})).await;
    let mut short = context("slow");
    short.deadline = Instant::now() + Duration::from_secs(1);
    let failure = bridge.call("odd", "slow", json!({}), &short).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    let cancelled = |count| {
        let cancels = cancels.clone();
        move || std::fs::read_to_string(&cancels).is_ok_and(|text| text.lines().count() == count)
    };
    wait_until("the first cancellation", cancelled(1)).await;
    // The others are cancelled once the server reports progress.
    let endless = json!({"steps": 10_000});
    let (long, mut lines) = context_with_progress("progress");
    let token = long.cancellation.clone();
    let running = {
        let (bridge, endless) = (bridge.clone(), endless.clone());
        tokio::spawn(async move { bridge.call("odd", "progress", endless, &long).await })
    };
    within_timeout("progress of the call", lines.recv()).await.unwrap();
    token.cancel();
    let failure = within_timeout("the cancelled call", running).await.unwrap().unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Cancelled);
    wait_until("the second cancellation", cancelled(2)).await;
    // Dropping the future cancels the call, too.
    let (dropped, mut lines) = context_with_progress("progress");
    tokio::select! {
        outcome = bridge.call("odd", "progress", endless, &dropped) => panic!("{outcome:?}"),
        line = within_timeout("progress of the call", lines.recv()) => line.unwrap(),
    };
    wait_until("the third cancellation", cancelled(3)).await;
    bridge.stop().await;
}

/// Returns a context for a call, and a receiver of its progress messages.
fn context_with_progress(tool: &str) -> (ToolContext, mpsc::Receiver<String>) {
    let (sender, lines) = mpsc::channel(100);
    let mut context = context(tool);
    context.updates = Some(Arc::new(move |update| {
        if let ToolUpdate::Progress(line) = update {
            let _ = sender.try_send(line);
        }
    }));
    (context, lines)
}

#[tokio::test]
async fn progress_reaches_the_caller() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    let (context, mut lines) = context_with_progress("progress");
    bridge.call("odd", "progress", json!({"steps": 2}), &context).await.unwrap();
    drop(context);
    assert_eq!(lines.recv().await.as_deref(), Some("0 of 5: step"));
    assert_eq!(lines.recv().await.as_deref(), Some("1 of 5: step"));
    bridge.stop().await;
}

#[tokio::test]
async fn elicitation_is_declined() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    let response = call_text(&bridge, "odd", "elicit", json!({})).await;
    assert_eq!(response, "{\"action\": \"decline\"}");
    bridge.stop().await;
}
