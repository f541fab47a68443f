//! Local runners and shortcuts to run scripts.

use std::time::Duration;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{
    Script, ScriptOutcome, ScriptRunner,
    local::{LocalOptions, LocalRunner},
};
use rockbot_tools::{ToolContext, ToolFailure};

/// Warm and cold interpreters. Every test runs with both.
pub(crate) const INTERPRETERS: [bool; 2] = [true, false];

pub(crate) async fn runner(options: LocalOptions) -> LocalRunner {
    LocalRunner::start(options).await.unwrap()
}

pub(crate) async fn plain(warm: bool) -> LocalRunner {
    runner(LocalOptions { warm, ..LocalOptions::default() }).await
}

pub(crate) fn context() -> ToolContext {
    ToolContext::new("script", SessionId::generate(), AgentName::new("tester").unwrap())
}

pub(crate) fn script(code: &str) -> Script {
    Script::new(code).unwrap().with_timeout(Duration::from_secs(60)).unwrap()
}

pub(crate) async fn run(runner: &LocalRunner, code: &str) -> ScriptOutcome {
    try_run(runner, code).await.unwrap()
}

pub(crate) async fn try_run(
    runner: &LocalRunner,
    code: &str,
) -> Result<ScriptOutcome, ToolFailure> {
    runner.run(&script(code), &context()).await
}

/// Returns the output of a script that must succeed.
pub(crate) async fn output_of(runner: &LocalRunner, code: &str) -> String {
    let outcome = run(runner, code).await;
    assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
    outcome.stdout
}

/// Returns the servers of this process that run in a mode. Each test is a process of its own.
pub(crate) fn children(mode: &str) -> Vec<rustix::process::Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let children =
        tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let pids: Vec<i32> = children
        .flat_map(|text| {
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    let serves = |pid: &i32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.ends_with(format!("{mode}\0").as_bytes())
    };
    pids.into_iter().filter(serves).filter_map(rustix::process::Pid::from_raw).collect()
}
