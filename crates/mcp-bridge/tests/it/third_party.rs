//! Calls of third-party MCP servers.

use std::{path::Path, process::Command, time::Duration};

use rockbot_contracts::{ContentBlock, ToolErrorCode};
use rockbot_testkit::mcp_servers::{HttpPeer, McpPeer, RunningHttpPeer};
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::{bridge, bridge_to_loopback, call, call_text, context};

/// Returns the configuration of a server with extra arguments.
fn server_entry(peer: McpPeer, extra: &[&str]) -> Value {
    let (program, mut arguments) = peer.command();
    arguments.extend(extra.iter().map(ToString::to_string));
    json!({"command": program, "args": arguments})
}

#[tokio::test]
async fn every_content_kind_is_returned() {
    let bridge = bridge(json!({"everything": server_entry(McpPeer::Everything, &[])})).await;
    let hello = call_text(&bridge, "everything", "echo", json!({"message": "hello"})).await;
    assert_eq!(hello, "Echo: hello");
    let sum = call_text(&bridge, "Everything", "get-sum", json!({"a": 2, "b": 3})).await;
    assert!(sum.contains('5'), "{sum}");
    let image = call(&bridge, "everything", "get-tiny-image", json!({})).await.unwrap();
    assert!(image.content.iter().any(|block| matches!(block,
        ContentBlock::Image { mime_type, data } if mime_type == "image/png" && data.len() > 100)));
    let weather = json!({"location": "Chicago"});
    let structured = call(&bridge, "everything", "get-structured-content", weather).await.unwrap();
    assert!(structured.details.is_some_and(|details| details.is_object()));
    let links =
        call(&bridge, "everything", "get-resource-links", json!({"count": 2})).await.unwrap();
    let links = links.content.iter().filter(|block| matches!(block, ContentBlock::Resource { .. }));
    assert_eq!(links.count(), 2);
    let refused = call(&bridge, "everything", "get-sum", json!({"a": "x"})).await;
    assert!(
        refused.map_or_else(|_| true, |result| result.is_error),
        "invalid arguments are rejected"
    );
    bridge.stop().await;
}

#[tokio::test]
async fn long_operation_reports_progress_and_is_cancellable() {
    let bridge = bridge(json!({"everything": server_entry(McpPeer::Everything, &[])})).await;
    let (sender, mut lines) = tokio::sync::mpsc::channel(100);
    let mut long = context("trigger-long-running-operation");
    long.updates =
        Some(std::sync::Arc::new(move |update| drop(sender.try_send(format!("{update:?}")))));
    let tool = "trigger-long-running-operation";
    let steps = json!({"duration": 1, "steps": 4});
    bridge.call("everything", tool, steps, &long).await.unwrap();
    assert!(lines.recv().await.is_some_and(|line| line.contains("of 4")));
    let short = context(tool);
    let token = short.cancellation.clone();
    let started_at = Instant::now();
    let running = bridge.call("everything", tool, json!({"duration": 60, "steps": 2}), &short);
    let cancel = async {
        tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>()).await.ok();
        token.cancel();
    };
    let (outcome, ()) = tokio::join!(running, cancel);
    assert_eq!(outcome.unwrap_err().code(), ToolErrorCode::Cancelled);
    assert!(started_at.elapsed() < Duration::from_secs(20));
    bridge.stop().await;
}

#[tokio::test]
async fn files_outside_configured_folder_are_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    std::fs::write(path.join("notes.txt"), "remember the milk").unwrap();
    let root = path.to_str().unwrap();
    let bridge = bridge(json!({"files": server_entry(McpPeer::Filesystem, &[root])})).await;
    let inside = json!({"path": path.join("notes.txt")});
    assert!(call_text(&bridge, "files", "read_text_file", inside).await.contains("the milk"));
    let outside = call(&bridge, "files", "read_text_file", json!({"path": "/etc/hostname"})).await;
    assert!(outside.unwrap().is_error);
    bridge.stop().await;
}

#[tokio::test]
async fn memory_server_stores_entities() {
    let folder = tempfile::tempdir().unwrap();
    let mut entry = server_entry(McpPeer::Memory, &[]);
    entry["env"] = json!({"MEMORY_FILE_PATH": folder.path().join("memory.jsonl")});
    let bridge = bridge(json!({"memory": entry})).await;
    let entities = json!({"entities": [
        {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    ]});
    call_text(&bridge, "memory", "create_entities", entities).await;
    let graph = call_text(&bridge, "memory", "read_graph", json!({})).await;
    assert!(graph.contains("wrote programs"), "{graph}");
    bridge.stop().await;
}

#[tokio::test]
async fn time_server_returns_time_in_zone() {
    let bridge =
        bridge(json!({"time": server_entry(McpPeer::Time, &["--local-timezone", "UTC"])})).await;
    let time =
        call_text(&bridge, "time", "get_current_time", json!({"timezone": "Asia/Tokyo"})).await;
    assert!(time.contains("Asia/Tokyo"), "{time}");
    let unknown_zone =
        call(&bridge, "time", "get_current_time", json!({"timezone": "Nowhere"})).await;
    assert!(unknown_zone.map_or_else(|_| true, |result| result.is_error));
    bridge.stop().await;
}

#[tokio::test]
async fn git_server_returns_repository_status() {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q", "-b", "main"]);
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    let path = folder.path().to_str().unwrap();
    let bridge = bridge(json!({"git": server_entry(McpPeer::Git, &["--repository", path])})).await;
    let status = call_text(&bridge, "git", "git_status", json!({"repo_path": path})).await;
    assert!(status.contains("a.txt"), "{status}");
    bridge.stop().await;
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").current_dir(folder).args(arguments).status();
    assert!(status.expect("git").success());
}

#[tokio::test]
async fn latest_revision_needs_no_handshake() {
    let bridge = bridge(json!({"fast": server_entry(McpPeer::FastMcp, &[])})).await;
    let status = bridge.servers().remove(0);
    assert_eq!(status.protocol_version.as_deref(), Some("2026-07-28"));
    let hello = call_text(&bridge, "fast", "echo", json!({"text": "hello"})).await;
    assert!(hello.contains("hello"), "{hello}");
    let failed = call(&bridge, "fast", "fail", json!({"reason": "why not"})).await.unwrap();
    assert!(failed.is_error);
    let image = call(&bridge, "fast", "image", json!({})).await.unwrap();
    assert!(matches!(image.content[0], ContentBlock::Image { .. }));
    bridge.stop().await;
}

#[tokio::test]
async fn remote_servers_of_every_transport_and_era_respond() {
    let peers = [
        (HttpPeer::EverythingStreamable, "http", "2025-11-25"),
        (HttpPeer::EverythingSse, "sse", "2025-11-25"),
        (HttpPeer::FastMcp, "http", "2026-07-28"),
    ];
    for (peer, kind, version) in peers {
        let server = tokio::task::spawn_blocking(move || RunningHttpPeer::start(peer));
        let server = server.await.unwrap();
        let bridge =
            bridge_to_loopback(json!({"remote": {"type": kind, "url": server.url()}})).await;
        let status = bridge.servers().remove(0);
        assert_eq!(status.protocol_version.as_deref(), Some(version), "{peer:?}");
        let arguments = match peer {
            HttpPeer::FastMcp => json!({"text": "hello"}),
            _ => json!({"message": "hello"}),
        };
        assert!(
            call_text(&bridge, "remote", "echo", arguments).await.contains("hello"),
            "{peer:?}"
        );
        bridge.stop().await;
    }
}

#[tokio::test]
async fn restarted_remote_server_is_reconnected() {
    let start = |port| {
        move || match port {
            None => RunningHttpPeer::start(HttpPeer::EverythingStreamable),
            Some(port) => RunningHttpPeer::start_on(HttpPeer::EverythingStreamable, port),
        }
    };
    let server = tokio::task::spawn_blocking(start(None)).await.unwrap();
    let bridge = bridge_to_loopback(json!({"remote": {"url": server.url()}})).await;
    assert!(call_text(&bridge, "remote", "echo", json!({"message": "one"})).await.contains("one"));
    let port = server.port();
    drop(server);
    let _restarted = tokio::task::spawn_blocking(start(Some(port))).await.unwrap();
    // The previous session is gone: the server returns 404, and that call did not run.
    let retried = async {
        loop {
            match call(&bridge, "remote", "echo", json!({"message": "two"})).await {
                Ok(result) => break result,
                Err(failure) => assert_ne!(failure.code(), ToolErrorCode::Timeout, "{failure}"),
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(60), retried).await.unwrap();
    assert!(result.to_text().contains("two"));
    bridge.stop().await;
}
