use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rockbot_tools::{Executed, ToolContext, ToolFailure, ToolUpdate};
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

use crate::sandbox::{Sandbox, context, wait_until};

/// A shell that waits for a background child and writes both process ids to a file.
const PROCESS_TREE: &str = "sleep 1000 & echo $! $$ > new; mv new pids; wait";

/// Reads the process ids that a command wrote to a file; empty before it is written.
fn pids(path: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// Returns whether a process has exited. A zombie counts as exited.
fn has_exited(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_err()
        || stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

async fn wait_until_exited(pids: &[Pid]) {
    assert!(!pids.is_empty());
    wait_until("all processes have exited", || pids.iter().copied().all(has_exited)).await;
}

#[tokio::test]
async fn command_runs_in_root_and_returns_output() {
    let sandbox = Sandbox::new();
    sandbox.put("a.txt", "hello\n");
    let result = sandbox.call("bash", json!({"command": "cat a.txt; pwd; cat"})).await.unwrap();
    let root = fs::canonicalize(sandbox.root("")).unwrap();
    assert_eq!(result.to_text(), format!("hello\n{}\n", root.display()));
    let details = result.details.unwrap();
    assert_eq!((&details["exitCode"], &details["stderrBytes"]), (&json!(0), &json!(0)));
    assert_eq!(sandbox.call_text("bash", json!({"command": "true"})).await, "[no output]");
}

#[tokio::test]
async fn failed_command_returns_error_with_output() {
    let sandbox = Sandbox::new();
    let command = json!({"command": "echo out; echo err >&2; exit 3"});
    let result = sandbox.call("bash", command).await.unwrap();
    assert!(result.is_error);
    let text = result.to_text().into_owned();
    assert!(text.starts_with("exit code 3\n"), "{text}");
    assert!(text.contains("out\n") && text.contains("err\n"), "{text}");
    let details = result.details.unwrap();
    assert_eq!(details["exitCode"], json!(3));
    assert_eq!((&details["stdoutBytes"], &details["stderrBytes"]), (&json!(4), &json!(4)));
    assert_eq!(details["truncated"], json!(false));
    let result = sandbox.call("bash", json!({"command": "kill -9 $$"})).await.unwrap();
    assert!(result.is_error && result.to_text().contains("signal"));
}

#[tokio::test]
async fn environment_of_handler_is_not_inherited() {
    let sandbox = Sandbox::new();
    let text = sandbox.call_text("bash", json!({"command": "/usr/bin/env"})).await;
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // The shell itself adds the last three.
    let allowed = ["HOME", "LANG", "PATH", "TERM", "PWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(text.contains("TERM=dumb\n"));
}

#[tokio::test]
async fn gigabyte_of_output_is_truncated() {
    let sandbox = Sandbox::new();
    let command = "echo first; head -c 1000000000 /dev/zero; echo; echo last";
    let arguments = json!({"command": command, "timeout_seconds": 60});
    let result = sandbox.call("bash", arguments).await.unwrap();
    let text = result.to_text();
    assert!(text.starts_with("first\n") && text.ends_with("\nlast\n"));
    assert!(text.len() < 256 * 1024 + 200, "{}", text.len());
    let details = result.details.as_ref().unwrap();
    assert_eq!(details["stdoutBytes"], json!(1_000_000_012));
    assert_eq!(details["truncated"], json!(true));
    assert!(peak_memory_kib() < 500_000, "the output was held in memory");
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn timeout_kills_process_tree() {
    let sandbox = Sandbox::new();
    let arguments = json!({"command": PROCESS_TREE, "timeout_seconds": 1});
    let failure = sandbox.call("bash", arguments).await.unwrap_err();
    let ToolFailure::TimedOut { after, executed, repeatable } = failure else {
        panic!("{failure:?}");
    };
    assert_eq!((after, executed, repeatable), (Duration::from_secs(1), Executed::Yes, false));
    wait_until_exited(&pids(&sandbox.root("pids"))).await;
}

#[tokio::test]
async fn process_that_ignores_sigterm_is_killed() {
    let sandbox = Sandbox::new();
    let command = format!("trap '' TERM; {PROCESS_TREE}; wait; sleep 1000");
    let arguments = json!({"command": command, "timeout_seconds": 1});
    let started = Instant::now();
    let failure = sandbox.call("bash", arguments).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::TimedOut { .. }), "{failure:?}");
    assert!(started.elapsed() >= Duration::from_secs(3), "killed without a grace period");
    wait_until_exited(&pids(&sandbox.root("pids"))).await;
}

#[tokio::test]
async fn sigterm_allows_cleanup() {
    let sandbox = Sandbox::new();
    let command = "trap 'echo bye > bye; exit' TERM; sleep 1000 & wait";
    let arguments = json!({"command": command, "timeout_seconds": 1});
    sandbox.call("bash", arguments).await.unwrap_err();
    assert_eq!(sandbox.text("bye"), "bye\n");
}

#[tokio::test]
async fn earlier_deadline_takes_precedence() {
    let sandbox = Sandbox::new();
    let mut context = context("bash");
    context.deadline = tokio::time::Instant::now() + Duration::from_millis(200);
    let arguments = json!({"command": "sleep 1000", "timeout_seconds": 500});
    let failure = sandbox.tool("bash").call(arguments, &context).await.unwrap_err();
    assert!(
        matches!(failure, ToolFailure::TimedOut { after, .. } if after < Duration::from_secs(1))
    );
}

#[tokio::test]
async fn cancellation_kills_process_tree() {
    let sandbox = Sandbox::new();
    let (tool, context) = (sandbox.tool("bash"), context("bash"));
    let pid_file = sandbox.root("pids");
    let cancel = async {
        wait_until("the process tree runs", || pid_file.exists()).await;
        context.cancellation.cancel();
    };
    let call = tool.call(json!({"command": PROCESS_TREE}), &context);
    let (result, ()) = tokio::join!(call, cancel);
    let failure = result.unwrap_err();
    assert!(matches!(failure, ToolFailure::Cancelled { executed: Executed::Yes }), "{failure:?}");
    wait_until_exited(&pids(&pid_file)).await;
}

#[tokio::test]
async fn dropped_call_kills_process_tree() {
    let sandbox = Sandbox::new();
    let (tool, context) = (sandbox.tool("bash"), context("bash"));
    let pid_file = sandbox.root("pids");
    tokio::select! {
        result = tool.call(json!({"command": PROCESS_TREE}), &context) => panic!("{result:?}"),
        () = wait_until("the process tree runs", || pid_file.exists()) => {}
    }
    wait_until_exited(&pids(&pid_file)).await;
}

#[tokio::test]
async fn background_child_with_open_output_does_not_block_call() {
    let sandbox = Sandbox::new();
    let started = Instant::now();
    let text = sandbox
        .call_text("bash", json!({"command": "sleep 1000 & echo $! > pids; echo done"}))
        .await;
    assert_eq!(text, "done\n");
    assert!(started.elapsed() < Duration::from_secs(10));
    wait_until_exited(&pids(&sandbox.root("pids"))).await;
}

#[tokio::test]
async fn silent_background_child_is_killed() {
    let sandbox = Sandbox::new();
    let command = "sleep 1000 >/dev/null 2>&1 & echo $! > pids";
    sandbox.call_text("bash", json!({"command": command})).await;
    wait_until_exited(&pids(&sandbox.root("pids"))).await;
}

#[tokio::test]
async fn command_that_closes_output_is_awaited() {
    let sandbox = Sandbox::new();
    let command = "exec >&- 2>&-; sleep 0.3; touch done";
    sandbox.call_text("bash", json!({"command": command})).await;
    assert!(sandbox.root("done").exists());
}

#[tokio::test]
async fn progress_shows_last_line() {
    let sandbox = Sandbox::new();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let updates = {
        let lines = Arc::clone(&lines);
        Arc::new(move |update| lines.lock().unwrap().push(update))
    };
    let context = ToolContext { updates: Some(updates), ..context("bash") };
    let command = json!({"command": "echo one; echo two; sleep 1.5"});
    sandbox.tool("bash").call(command, &context).await.unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.contains(&ToolUpdate::Progress("two".to_owned())), "{lines:?}");
    assert!(lines.len() <= 3, "{lines:?}");
}

#[tokio::test]
async fn invalid_command_is_rejected() {
    let sandbox = Sandbox::new();
    for command in ["echo \0".to_owned(), "x".repeat(130_000)] {
        let message = sandbox.call_error("bash", json!({"command": command})).await;
        assert!(message.contains("shorter than"), "{message}");
    }
}
