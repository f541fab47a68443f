//! The audit log.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use futures_util::poll;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::Harness;

fn records(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn finished_call_is_recorded_without_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let harness = Harness::new(json!({ "file": file }), json!([]));
    assert_eq!(harness.echo("hello").await.unwrap(), "hello");
    harness.close().await;
    let records = records(&file);
    assert_eq!(records.len(), 1);
    let record = &records[0];
    for (key, value) in [
        ("service", json!("test")),
        ("instance", json!("instance-1")),
        ("tool", json!("echo")),
        ("agent", json!("assistant")),
        ("sessionId", json!("session-1")),
        // printf '{"text":"hello"}' | sha256sum
        (
            "argumentsSha256",
            json!("cbbbdcd27692344de5dbab3abcaba413fb0f45307267de7081401576df1cb176"),
        ),
        ("argumentsBytes", json!(16)),
        ("decision", json!("allowed")),
        ("outcome", json!("ok")),
        ("executed", json!("yes")),
        ("resultBytes", json!(5)),
    ] {
        assert_eq!(record[key], value, "{key} in {record}");
    }
    assert!(record["toolCallId"].is_string() && record["durationMs"].is_u64(), "{record}");
    assert!(record["time"].as_str().unwrap().ends_with('Z'), "{record}");
    assert!(record.get("arguments").is_none() && record.get("result").is_none(), "{record}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn content_is_recorded_if_configured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let harness = Harness::new(json!({ "file": file, "content": true }), json!([]));
    harness.echo(&"é".repeat(100_000)).await.unwrap();
    harness.close().await;
    let record = records(&file).remove(0);
    let (arguments, result) = (record["arguments"].as_str(), record["result"].as_str());
    assert!(
        arguments.is_some_and(|text| text.starts_with("{\"text\":\"é") && text.len() <= 65_536)
    );
    assert!(result.is_some_and(|text| text.starts_with('é') && text.len() <= 65_536));
}

#[tokio::test]
async fn failed_call_is_recorded_with_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let harness = Harness::new(json!({ "file": file }), json!([]));
    harness.call("missing", "{}").await.unwrap_err();
    harness.call("echo", "{\"text\":1}").await.unwrap_err();
    harness.close().await;
    let records = records(&file);
    assert_eq!(records[0]["outcome"], "tool_not_found");
    assert_eq!(records[1]["outcome"], "invalid_arguments");
    assert!(records.iter().all(|record| record["executed"] == "no"), "{records:?}");
}

#[tokio::test]
async fn refusal_of_a_command_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let refuse = json!({ "before": ["sh", "-c", "echo not today; exit 1"] });
    let harness = Harness::new(json!({ "file": file }), json!([refuse]));
    harness.echo("hello").await.unwrap_err();
    harness.close().await;
    let record = records(&file).remove(0);
    assert_eq!(record["decision"], "refused");
    assert_eq!(record["outcome"], "not_permitted");
    assert_eq!(record["executed"], "no");
    assert!(record["reason"].as_str().unwrap().contains("not today"), "{record}");
}

#[tokio::test]
async fn abandoned_call_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let harness = Harness::new(json!({ "file": file }), json!([]));
    {
        let mut call = std::pin::pin!(harness.call("echo", "{\"text\":\"hang\"}"));
        assert!(poll!(&mut call).is_pending());
    }
    harness.close().await;
    let record = records(&file).remove(0);
    assert_eq!(
        (record["outcome"].as_str(), record["executed"].as_str()),
        (Some("abandoned"), Some("unknown"))
    );
}

#[tokio::test]
async fn renamed_file_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1"));
    let harness = Harness::new(json!({ "file": file }), json!([]));
    harness.echo("first").await.unwrap();
    timeout(Duration::from_secs(10), async {
        while fs::read(&file).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    fs::rename(&file, &rotated).unwrap();
    harness.echo("second").await.unwrap();
    harness.close().await;
    assert_eq!((records(&rotated).len(), records(&file).len()), (1, 1));
}

#[tokio::test]
async fn unwritable_log_refuses_calls_until_it_is_writable() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let harness = Harness::new(json!({ "file": logs.join("audit.jsonl") }), json!([]));
    fs::remove_dir_all(&logs).unwrap();
    timeout(Duration::from_secs(10), async {
        while harness.echo("hello").await.is_ok() {}
        fs::create_dir(&logs).unwrap();
        while harness.echo("hello").await.is_err() {}
    })
    .await
    .expect("calls are refused while the log can't be written, and only then");
}

#[tokio::test]
async fn unfinished_line_of_a_killed_process_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    fs::write(&file, "{\"time\":\"20").unwrap();
    let harness = Harness::new(json!({ "file": file }), json!([]));
    harness.echo("hello").await.unwrap();
    harness.close().await;
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(serde_json::from_str::<Value>(lines[1]).is_ok(), "{text}");
}

#[tokio::test]
async fn closed_log_refuses_calls() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::new(json!({ "file": folder.path().join("audit.jsonl") }), json!([]));
    harness.hooks.close().await;
    assert!(harness.echo("hello").await.is_err());
}

#[tokio::test]
async fn full_disk_does_not_stop_calls_if_configured() {
    let audit = json!({ "file": "/dev/full", "on_failure": "allow" });
    let harness = Harness::new(audit, json!([]));
    harness.echo("lost").await.unwrap();
    timeout(Duration::from_secs(10), async {
        while !harness.hooks.audit_is_failing() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the failed write is noticed");
    harness.echo("hello").await.unwrap();
}

#[tokio::test]
async fn missing_folder_is_an_error_at_start() {
    let section = serde_json::from_value(json!({ "file": "/nowhere/at/all/audit.jsonl" })).unwrap();
    let instance = rockbot_contracts::InstanceId::new("instance-1").unwrap();
    let error = rockbot_hooks::AuditLog::open(&section, "test", &instance).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all/audit.jsonl"), "{error}");
}
