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
async fn refusal_carries_the_first_line_of_reason() {
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
        ("timeout", shell("exec sleep 60")),
    ];
    for (name, before) in failures {
        let closed = json!({ "before": before, "timeout": "200ms" });
        let failure = Harness::with_hook(&closed).echo("hello").await.unwrap_err();
        assert!(
            failure.contains("a check that must precede this call failed"),
            "{name}: {failure}"
        );
        let open = json!({ "before": before, "timeout": "200ms", "on_failure": "allow" });
        assert_eq!(Harness::with_hook(&open).echo("hello").await.unwrap(), "hello", "{name}");
    }
}

#[tokio::test]
async fn timed_out_program_dies_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    // The child holds the pipe open for writing; reading it to the end needs the child gone.
    let script = "exec 3>\"$1\"; echo started >&3; sleep 60 & wait";
    let hook = json!({ "before": ["sh", "-c", script, "hook", pipe], "timeout": "500ms" });
    let harness = Harness::with_hook(&hook);
    let read = tokio::task::spawn_blocking(move || fs::read_to_string(pipe).unwrap());
    harness.echo("hello").await.unwrap_err();
    let text = timeout(Duration::from_secs(10), read).await.expect("the child is gone").unwrap();
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
    let hook = json!({ "after": shell("echo broken; exit 1"), "timeout": "5s" });
    assert_eq!(Harness::with_hook(&hook).echo("hello").await.unwrap(), "hello");
}

#[tokio::test]
async fn endless_output_is_cut() {
    let hook = json!({ "before": shell("yes no; exit 1"), "timeout": "2s", "on_failure": "allow" });
    // `yes` dies of its closed pipe, so the shell goes on and refuses.
    let failure = Harness::with_hook(&hook).echo("hello").await.unwrap_err();
    assert!(failure.len() < 700, "{} bytes", failure.len());
}
