//! A runner, and short ways to ask it.

use std::time::Duration;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{
    Script, ScriptOutcome, ScriptRunner,
    local::{LocalOptions, LocalRunner},
};
use rockbot_tools::{ToolContext, ToolFailure};

/// Both ways to an interpreter. What is promised holds on both.
pub(crate) const WAYS: [bool; 2] = [true, false];

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
    Script::new(code).unwrap().within(Duration::from_secs(60)).unwrap()
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

/// What a script prints that ends well.
pub(crate) async fn printed(runner: &LocalRunner, code: &str) -> String {
    let outcome = run(runner, code).await;
    assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
    outcome.stdout
}
