//! Hook commands.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::Harness;

fn shell(script: &str) -> Value {
    json!(["sh", "-c", script])
}

#[tokio::test]
async fn exit_code_zero_allows_the_call() {
    let harness = Harness::with_hook(&json!({ "before": shell("echo a note; exit 0") }));
    assert_eq!(harness.echo("hello").await.unwrap(), "hello");
}

#[tokio::test]
async fn refusal_carries_reason_on_one_line() {
    let script = "printf 'no\\033[2J writes\\non Friday'; exit 3";
    let harness = Harness::with_hook(&json!({ "before": shell(script) }));
    let failure = harness.echo("hello").await.unwrap_err();
    assert!(failure.contains("no [2J writes on Friday"), "{failure}");
}

#[tokio::test]
async fn program_reads_the_call_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let hook = json!({
        "before": ["sh", "-c", "cat > \"$1\"", "hook", before],
        "after": ["sh", "-c", "cat > \"$1\"", "hook", after],
    });
    let harness = Harness::with_hook(&hook);
    harness.echo("hello").await.unwrap();
    let read = |path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let (before, after) = (read(before), read(after));
    assert_eq!(before["event"], "before");
    assert_eq!(before["tool"], "echo");
    assert_eq!(before["arguments"], json!({ "text": "hello" }));
    assert!(before.get("outcome").is_none(), "{before}");
    assert_eq!(after["event"], "after");
    assert_eq!(after["toolCallId"], before["toolCallId"]);
    assert_eq!((after["outcome"].as_str(), after["executed"].as_str()), (Some("ok"), Some("yes")));
}

#[tokio::test]
async fn failing_program_refuses_unless_it_fails_open() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let failures = [
        ("cannot start", json!([missing])),
        ("no reason", shell("exit 1")),
        ("killed", shell("echo a reason; kill -9 $$")),
    ];
    for (name, before) in failures {
        let closed = json!({ "before": before });
        let failure = Harness::with_hook(&closed).echo("hello").await.unwrap_err();
        assert!(
            failure.contains("a check that must precede this call failed"),
            "{name}: {failure}"
        );
        let open = json!({ "before": before, "on_failure": "allow" });
        assert_eq!(Harness::with_hook(&open).echo("hello").await.unwrap(), "hello", "{name}");
    }
}

#[tokio::test]
async fn timed_out_program_dies_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    // The child holds the pipe open for writing: it is at its end when the child is gone.
    let script = "exec 3>\"$1\"; echo started >&3; sleep 60 & wait";
    let hook = json!({ "before": ["sh", "-c", script, "hook", pipe], "timeout": "2s" });
    let harness = Harness::with_hook(&hook);
    let mut reader = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&pipe).unwrap();
    let failure = harness.echo("hello").await.unwrap_err();
    assert!(failure.contains("a check that must precede this call failed"), "{failure}");
    let mut text = String::new();
    let read = tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut text);
    timeout(Duration::from_secs(10), read).await.expect("the child is gone").unwrap();
    assert_eq!(text, "started\n");
}

/// Makes a named pipe with the program of coreutils.
fn make_pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn program_sees_only_listed_environment() {
    let script =
        "test -n \"$PATH\" && test -z \"$CARGO_MANIFEST_DIR\" && test -n \"$CARGO_PKG_NAME\"";
    let hook = json!({ "before": shell(script), "environment": ["CARGO_PKG_NAME"] });
    assert_eq!(Harness::with_hook(&hook).echo("hello").await.unwrap(), "hello");
}

#[tokio::test]
async fn tool_patterns_select_calls() {
    let refuse = |tools: Value| json!({ "before": shell("echo no; exit 1"), "tools": tools });
    assert!(Harness::with_hook(&refuse(json!(["other", "files_*"]))).echo("hello").await.is_ok());
    assert!(Harness::with_hook(&refuse(json!(["ec*"]))).echo("hello").await.is_err());
}

#[tokio::test]
async fn failure_after_a_call_keeps_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let hook = json!({ "after": ["sh", "-c", "touch \"$1\"; echo broken; exit 1", "hook", ran] });
    assert_eq!(Harness::with_hook(&hook).echo("hello").await.unwrap(), "hello");
    assert!(ran.exists(), "the program did not run");
}

#[tokio::test]
async fn alias_of_a_tool_is_checked_under_its_registered_name() {
    let refuse = json!({ "before": shell("echo no; exit 1"), "tools": ["read_text"] });
    let harness = Harness::with_hook(&refuse);
    let failure = harness.call("read.text", "{\"text\":\"hello\"}").await;
    assert!(failure.is_err(), "the call escaped the check: {failure:?}");
    let open = Harness::with_hook(&json!({ "after": shell("true") }));
    let accepted = open.call("read.text", "{\"text\":\"hello\"}").await;
    assert!(accepted.is_ok(), "the registry accepts this name: {accepted:?}");
}

#[tokio::test]
async fn program_gets_repaired_arguments() {
    let check = "grep -q '\"arguments\":{\"text\":\"secret\"}' && echo no && exit 1; exit 0";
    let harness = Harness::with_hook(&json!({ "before": shell(check) }));
    assert!(harness.call("echo", "{\"text\":\"secret\",}").await.is_err());
    assert!(harness.call("echo", "{\"text\":\"public\",}").await.is_ok());
}

#[tokio::test]
async fn child_with_open_output_does_not_delay_the_decision() {
    let hook = json!({ "before": shell("sleep 60 & exit 0"), "timeout": "30s" });
    let harness = Harness::with_hook(&hook);
    let call = timeout(Duration::from_secs(20), harness.echo("hello"));
    assert_eq!(call.await.expect("the program has exited").unwrap(), "hello");
}

#[tokio::test]
async fn cancelled_call_does_not_wait_for_its_check() {
    let harness = Harness::with_hook(&json!({ "before": shell("sleep 60"), "timeout": "60s" }));
    let failure = harness.cancelled_call().await.unwrap_err();
    assert_eq!(failure.executed(), rockbot_contracts::Executed::No);
}

#[tokio::test]
async fn long_output_is_cut() {
    let hook =
        json!({ "before": shell("yes no | head -c 1000000; exit 1"), "on_failure": "allow" });
    let failure = Harness::with_hook(&hook).echo("hello").await.unwrap_err();
    assert!(failure.len() < 700, "{} bytes", failure.len());
}
