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

use crate::workshop::{Workshop, context, eventually};

/// A shell that waits for a background child and says both their numbers in a file.
const FAMILY: &str = "sleep 1000 & echo $! $$ > new; mv new pids; wait";

/// The numbers that a command wrote to a file; none before it did.
fn pids(path: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// A process that nobody has reaped yet is gone as well: it runs nothing.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_err()
        || stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

async fn all_gone(pids: &[Pid]) {
    assert!(!pids.is_empty());
    eventually("all processes are gone", || pids.iter().copied().all(is_gone)).await;
}

#[tokio::test]
async fn a_command_runs_in_the_root_and_its_output_comes_back() {
    let workshop = Workshop::new();
    workshop.put("a.txt", "hello\n");
    let result = workshop.call("bash", json!({"command": "cat a.txt; pwd; cat"})).await.unwrap();
    let root = fs::canonicalize(workshop.root("")).unwrap();
    assert_eq!(result.to_text(), format!("hello\n{}\n", root.display()));
    let details = result.details.unwrap();
    assert_eq!((&details["exitCode"], &details["stderrBytes"]), (&json!(0), &json!(0)));
    assert_eq!(workshop.said("bash", json!({"command": "true"})).await, "[no output]");
}

#[tokio::test]
async fn a_command_that_fails_is_an_error_with_its_output() {
    let workshop = Workshop::new();
    let command = json!({"command": "echo out; echo err >&2; exit 3"});
    let result = workshop.call("bash", command).await.unwrap();
    assert!(result.is_error);
    let text = result.to_text().into_owned();
    assert!(text.starts_with("exit code 3\n"), "{text}");
    assert!(text.contains("out\n") && text.contains("err\n"), "{text}");
    let details = result.details.unwrap();
    assert_eq!(details["exitCode"], json!(3));
    assert_eq!((&details["stdoutBytes"], &details["stderrBytes"]), (&json!(4), &json!(4)));
    assert_eq!(details["truncated"], json!(false));
    let result = workshop.call("bash", json!({"command": "kill -9 $$"})).await.unwrap();
    assert!(result.is_error && result.to_text().contains("signal"));
}

#[tokio::test]
async fn the_environment_holds_nothing_of_the_handler() {
    let workshop = Workshop::new();
    let text = workshop.said("bash", json!({"command": "/usr/bin/env"})).await;
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // The shell itself adds the last three.
    let allowed = ["HOME", "LANG", "PATH", "TERM", "PWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(text.contains("TERM=dumb\n"));
}

#[tokio::test]
async fn a_gigabyte_of_output_is_counted_and_its_ends_are_kept() {
    let workshop = Workshop::new();
    let command = "echo first; head -c 1000000000 /dev/zero; echo; echo last";
    let arguments = json!({"command": command, "timeout_seconds": 60});
    let result = workshop.call("bash", arguments).await.unwrap();
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
async fn a_time_out_ends_the_whole_family() {
    let workshop = Workshop::new();
    let arguments = json!({"command": FAMILY, "timeout_seconds": 1});
    let failure = workshop.call("bash", arguments).await.unwrap_err();
    let ToolFailure::TimedOut { after, executed, repeatable } = failure else {
        panic!("{failure:?}");
    };
    assert_eq!((after, executed, repeatable), (Duration::from_secs(1), Executed::Yes, false));
    all_gone(&pids(&workshop.root("pids"))).await;
}

#[tokio::test]
async fn who_does_not_listen_to_a_polite_signal_is_killed() {
    let workshop = Workshop::new();
    let command = format!("trap '' TERM; {FAMILY}; wait; sleep 1000");
    let arguments = json!({"command": command, "timeout_seconds": 1});
    let began = Instant::now();
    let failure = workshop.call("bash", arguments).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::TimedOut { .. }), "{failure:?}");
    assert!(began.elapsed() >= Duration::from_secs(3), "there was no grace");
    all_gone(&pids(&workshop.root("pids"))).await;
}

#[tokio::test]
async fn a_polite_signal_gives_time_to_clean_up() {
    let workshop = Workshop::new();
    let command = "trap 'echo bye > bye; exit' TERM; sleep 1000 & wait";
    let arguments = json!({"command": command, "timeout_seconds": 1});
    workshop.call("bash", arguments).await.unwrap_err();
    assert_eq!(workshop.text("bye"), "bye\n");
}

#[tokio::test]
async fn a_deadline_before_the_time_out_counts() {
    let workshop = Workshop::new();
    let mut context = context("bash");
    context.deadline = tokio::time::Instant::now() + Duration::from_millis(200);
    let arguments = json!({"command": "sleep 1000", "timeout_seconds": 500});
    let failure = workshop.tool("bash").call(arguments, &context).await.unwrap_err();
    assert!(
        matches!(failure, ToolFailure::TimedOut { after, .. } if after < Duration::from_secs(1))
    );
}

#[tokio::test]
async fn cancellation_ends_the_whole_family() {
    let workshop = Workshop::new();
    let (tool, context) = (workshop.tool("bash"), context("bash"));
    let pid_file = workshop.root("pids");
    let cancel = async {
        eventually("the family runs", || pid_file.exists()).await;
        context.cancellation.cancel();
    };
    let call = tool.call(json!({"command": FAMILY}), &context);
    let (result, ()) = tokio::join!(call, cancel);
    let failure = result.unwrap_err();
    assert!(matches!(failure, ToolFailure::Cancelled { executed: Executed::Yes }), "{failure:?}");
    all_gone(&pids(&pid_file)).await;
}

#[tokio::test]
async fn a_dropped_call_leaves_nobody_behind() {
    let workshop = Workshop::new();
    let (tool, context) = (workshop.tool("bash"), context("bash"));
    let pid_file = workshop.root("pids");
    tokio::select! {
        result = tool.call(json!({"command": FAMILY}), &context) => panic!("{result:?}"),
        () = eventually("the family runs", || pid_file.exists()) => {}
    }
    all_gone(&pids(&pid_file)).await;
}

#[tokio::test]
async fn a_background_child_that_holds_the_output_does_not_hold_the_call() {
    let workshop = Workshop::new();
    let began = Instant::now();
    let text =
        workshop.said("bash", json!({"command": "sleep 1000 & echo $! > pids; echo done"})).await;
    assert_eq!(text, "done\n");
    assert!(began.elapsed() < Duration::from_secs(10));
    all_gone(&pids(&workshop.root("pids"))).await;
}

#[tokio::test]
async fn a_silent_background_child_ends_with_the_command() {
    let workshop = Workshop::new();
    let command = "sleep 1000 >/dev/null 2>&1 & echo $! > pids";
    workshop.said("bash", json!({"command": command})).await;
    all_gone(&pids(&workshop.root("pids"))).await;
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_still_waited_for() {
    let workshop = Workshop::new();
    let command = "exec >&- 2>&-; sleep 0.3; touch done";
    workshop.said("bash", json!({"command": command})).await;
    assert!(workshop.root("done").exists());
}

#[tokio::test]
async fn who_watches_sees_the_last_line() {
    let workshop = Workshop::new();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let updates = {
        let lines = Arc::clone(&lines);
        Arc::new(move |update| lines.lock().unwrap().push(update))
    };
    let context = ToolContext { updates: Some(updates), ..context("bash") };
    let command = json!({"command": "echo one; echo two; sleep 1.5"});
    workshop.tool("bash").call(command, &context).await.unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.contains(&ToolUpdate::Progress("two".to_owned())), "{lines:?}");
    assert!(lines.len() <= 3, "{lines:?}");
}

#[tokio::test]
async fn commands_that_cannot_be_started_are_refused() {
    let workshop = Workshop::new();
    for command in ["echo \0".to_owned(), "x".repeat(130_000)] {
        let message = workshop.refusal("bash", json!({"command": command})).await;
        assert!(message.contains("shorter than"), "{message}");
    }
}
