//! Servers that nobody here wrote.

use std::{path::Path, process::Command, time::Duration};

use rockbot_contracts::{ContentBlock, ToolErrorCode};
use rockbot_testkit::mcp_peers::{HttpPeer, McpPeer, RunningHttpPeer};
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bed::{bridge, bridge_to_loopback, call, context, said};

/// The entry of a real server, with more arguments.
fn peer(peer: McpPeer, more: &[&str]) -> Value {
    let (program, mut arguments) = peer.command();
    arguments.extend(more.iter().map(ToString::to_string));
    json!({"command": program, "args": arguments})
}

#[tokio::test]
async fn everything_that_a_tool_can_say_arrives() {
    let bridge = bridge(json!({"everything": peer(McpPeer::Everything, &[])})).await;
    let hello = said(&bridge, "everything", "echo", json!({"message": "hello"})).await;
    assert_eq!(hello, "Echo: hello");
    let sum = said(&bridge, "Everything", "get-sum", json!({"a": 2, "b": 3})).await;
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
    assert!(refused.map_or_else(|_| true, |result| result.is_error), "it checks its arguments");
    bridge.stop().await;
}

#[tokio::test]
async fn a_long_operation_tells_its_progress_and_can_be_cancelled() {
    let bridge = bridge(json!({"everything": peer(McpPeer::Everything, &[])})).await;
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
    let began = Instant::now();
    let running = bridge.call("everything", tool, json!({"duration": 60, "steps": 2}), &short);
    let cancel = async {
        tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>()).await.ok();
        token.cancel();
    };
    let (ended, ()) = tokio::join!(running, cancel);
    assert_eq!(ended.unwrap_err().code(), ToolErrorCode::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(20));
    bridge.stop().await;
}

#[tokio::test]
async fn files_are_read_within_the_folder_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    std::fs::write(path.join("notes.txt"), "remember the milk").unwrap();
    let root = path.to_str().unwrap();
    let bridge = bridge(json!({"files": peer(McpPeer::Filesystem, &[root])})).await;
    let inside = json!({"path": path.join("notes.txt")});
    assert!(said(&bridge, "files", "read_text_file", inside).await.contains("the milk"));
    let outside = call(&bridge, "files", "read_text_file", json!({"path": "/etc/hostname"})).await;
    assert!(outside.unwrap().is_error);
    bridge.stop().await;
}

#[tokio::test]
async fn a_memory_is_kept_by_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut entry = peer(McpPeer::Memory, &[]);
    entry["env"] = json!({"MEMORY_FILE_PATH": folder.path().join("memory.jsonl")});
    let bridge = bridge(json!({"memory": entry})).await;
    let entities = json!({"entities": [
        {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    ]});
    said(&bridge, "memory", "create_entities", entities).await;
    let graph = said(&bridge, "memory", "read_graph", json!({})).await;
    assert!(graph.contains("wrote programs"), "{graph}");
    bridge.stop().await;
}

#[tokio::test]
async fn the_time_is_told() {
    let bridge = bridge(json!({"time": peer(McpPeer::Time, &["--local-timezone", "UTC"])})).await;
    let time = said(&bridge, "time", "get_current_time", json!({"timezone": "Asia/Tokyo"})).await;
    assert!(time.contains("Asia/Tokyo"), "{time}");
    let nowhere = call(&bridge, "time", "get_current_time", json!({"timezone": "Nowhere"})).await;
    assert!(nowhere.map_or_else(|_| true, |result| result.is_error));
    bridge.stop().await;
}

#[tokio::test]
async fn a_repository_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q", "-b", "main"]);
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    let path = folder.path().to_str().unwrap();
    let bridge = bridge(json!({"git": peer(McpPeer::Git, &["--repository", path])})).await;
    let status = said(&bridge, "git", "git_status", json!({"repo_path": path})).await;
    assert!(status.contains("a.txt"), "{status}");
    bridge.stop().await;
}

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git").current_dir(folder).args(arguments).status();
    assert!(done.expect("git").success());
}

#[tokio::test]
async fn a_server_of_the_latest_revision_needs_no_handshake() {
    let bridge = bridge(json!({"fast": peer(McpPeer::FastMcp, &[])})).await;
    let status = bridge.servers().remove(0);
    assert_eq!(status.protocol_version.as_deref(), Some("2026-07-28"));
    let hello = said(&bridge, "fast", "echo", json!({"text": "hello"})).await;
    assert!(hello.contains("hello"), "{hello}");
    let failed = call(&bridge, "fast", "fail", json!({"reason": "why not"})).await.unwrap();
    assert!(failed.is_error);
    let image = call(&bridge, "fast", "image", json!({})).await.unwrap();
    assert!(matches!(image.content[0], ContentBlock::Image { .. }));
    bridge.stop().await;
}

#[tokio::test]
async fn remote_servers_of_every_transport_and_era_are_called_alike() {
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
        let words = json!({"message": "hello", "text": "hello"});
        let words = match peer {
            HttpPeer::FastMcp => json!({"text": words["text"]}),
            _ => json!({"message": words["message"]}),
        };
        assert!(said(&bridge, "remote", "echo", words).await.contains("hello"), "{peer:?}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_remote_server_that_starts_anew_is_found_again() {
    let start = |port| {
        move || match port {
            None => RunningHttpPeer::start(HttpPeer::EverythingStreamable),
            Some(port) => RunningHttpPeer::start_on(HttpPeer::EverythingStreamable, port),
        }
    };
    let server = tokio::task::spawn_blocking(start(None)).await.unwrap();
    let bridge = bridge_to_loopback(json!({"remote": {"url": server.url()}})).await;
    assert!(said(&bridge, "remote", "echo", json!({"message": "one"})).await.contains("one"));
    let port = server.port();
    drop(server);
    let _again = tokio::task::spawn_blocking(start(Some(port))).await.unwrap();
    // The session of before is gone: the server says 404 to it. That call did not run.
    let answered = async {
        loop {
            match call(&bridge, "remote", "echo", json!({"message": "two"})).await {
                Ok(result) => break result,
                Err(failure) => assert_ne!(failure.code(), ToolErrorCode::Timeout, "{failure}"),
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(60), answered).await.unwrap();
    assert!(result.to_text().contains("two"));
    bridge.stop().await;
}
