//! What a server does wrong ends its own call, and says whether the tool ran.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{ToolContext, ToolUpdate};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::bed::{bridge, call, context, misbehaving, said};

#[tokio::test]
async fn a_call_and_its_failures_arrive_as_the_server_means_them() {
    let bridge = bridge(json!({"Odd": misbehaving()})).await;
    assert_eq!(
        said(&bridge, "odd", "echo", json!({"b": 1, "a": "ä"})).await,
        "{\"a\": \"\\u00e4\", \"b\": 1}"
    );
    let failed = call(&bridge, "ODD", "fail", json!({})).await.unwrap();
    assert!(failed.is_error && failed.to_text() == "it did not work");
    let refused = call(&bridge, "odd", "refuse", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), ToolErrorCode::InvalidArguments);
    let missing = call(&bridge, "odd", "ECHO", json!({})).await.unwrap_err();
    assert_eq!(missing.code(), ToolErrorCode::ToolNotFound, "tools are matched exactly");
    let nowhere = call(&bridge, "even", "echo", json!({})).await.unwrap_err();
    assert_eq!((nowhere.code(), nowhere.executed()), (ToolErrorCode::Unavailable, Executed::No));
    bridge.stop().await;
}

#[tokio::test]
async fn an_answer_that_cant_be_read_ends_its_own_call_only() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    let beside = {
        let bridge = bridge.clone();
        tokio::spawn(async move { said(&bridge, "odd", "slow", json!({"seconds": 1.5})).await })
    };
    for (tool, words) in [("garbage", "not valid JSON-RPC"), ("huge", "bytes")] {
        // A gigabyte of one line.
        let failure = call(&bridge, "odd", tool, json!({"megabytes": 1000})).await.unwrap_err();
        assert!(failure.to_string().contains(words), "{tool}: {failure}");
        assert_eq!(failure.executed(), Executed::Yes);
    }
    assert_eq!(said(&bridge, "odd", "wrong", json!({})).await, "for you");
    assert_eq!(within_timeout("the call beside", beside).await.unwrap(), "done");
    bridge.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_comes_back() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    for tool in ["die", "half"] {
        let first = said(&bridge, "odd", "pid", json!({})).await;
        let failure = call(&bridge, "odd", tool, json!({})).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{tool}: {failure}");
        assert!(bridge.registry_name("odd", "echo").is_some(), "its tools stay listed");
        // The next call waits for the next process.
        let second = said(&bridge, "odd", "pid", json!({})).await;
        assert_ne!(first, second);
    }
    bridge.stop().await;
}

#[tokio::test]
async fn silence_ends_one_call_and_progress_is_no_silence() {
    let mut entry = misbehaving();
    entry["requestTimeoutMs"] = json!(1500);
    let folder = tempfile::tempdir().unwrap();
    let cancels = folder.path().join("cancels");
    entry["env"] = json!({"CANCELS": cancels});
    let bridge = bridge(json!({"odd": entry})).await;
    let failure = call(&bridge, "odd", "silent", json!({})).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Unknown));
    assert!(!failure.is_retryable(), "it may have run");
    let told = || std::fs::read_to_string(&cancels).is_ok_and(|text| text.lines().count() == 1);
    wait_until("the server to hear of the cancel", told).await;
    // Ten steps of 300 ms are more than the time-out, and no step is.
    let steps = json!({"steps": 10, "pause": 0.3});
    assert_eq!(said(&bridge, "odd", "progress", steps).await, "done");
    assert!(bridge.registry_name("odd", "silent").is_some(), "a time-out unregisters nothing");
    bridge.stop().await;
}

#[tokio::test]
async fn the_askers_deadline_and_cancel_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let cancels = folder.path().join("cancels");
    let mut entry = misbehaving();
    entry["env"] = json!({"CANCELS": cancels});
    let bridge = bridge(json!({"odd": entry})).await;
    let mut hasty = context("slow");
    hasty.deadline = Instant::now() + Duration::from_secs(1);
    let failure = bridge.call("odd", "slow", json!({}), &hasty).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    let told = |count| {
        let cancels = cancels.clone();
        move || std::fs::read_to_string(&cancels).is_ok_and(|text| text.lines().count() == count)
    };
    wait_until("the first cancel", told(1)).await;
    // Each of the others is cancelled once the server runs it.
    let endless = json!({"steps": 10_000});
    let (patient, mut lines) = following("progress");
    let token = patient.cancellation.clone();
    let running = {
        let (bridge, endless) = (bridge.clone(), endless.clone());
        tokio::spawn(async move { bridge.call("odd", "progress", endless, &patient).await })
    };
    within_timeout("a sign of the call", lines.recv()).await.unwrap();
    token.cancel();
    let failure = within_timeout("the cancelled call", running).await.unwrap().unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Cancelled);
    wait_until("the second cancel", told(2)).await;
    // One whose future is dropped is cancelled too.
    let (dropped, mut lines) = following("progress");
    tokio::select! {
        ended = bridge.call("odd", "progress", endless, &dropped) => panic!("{ended:?}"),
        line = within_timeout("a sign of the call", lines.recv()) => line.unwrap(),
    };
    wait_until("the third cancel", told(3)).await;
    bridge.stop().await;
}

/// What a call is made with, and the lines of its progress.
fn following(tool: &str) -> (ToolContext, mpsc::Receiver<String>) {
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
async fn progress_arrives_with_whoever_asked() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    let (context, mut lines) = following("progress");
    bridge.call("odd", "progress", json!({"steps": 2}), &context).await.unwrap();
    drop(context);
    assert_eq!(lines.recv().await.as_deref(), Some("0 of 5: step"));
    assert_eq!(lines.recv().await.as_deref(), Some("1 of 5: step"));
    bridge.stop().await;
}

#[tokio::test]
async fn nobody_is_asked_and_the_server_hears_so() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    let answer = said(&bridge, "odd", "ask", json!({})).await;
    assert_eq!(answer, "{\"action\": \"decline\"}");
    bridge.stop().await;
}
