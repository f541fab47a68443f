//! A runner that calls the tool `execute_python_script` of a tool handler.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_scripts::{Isolation, Script, ScriptOutcome, ScriptRunner};
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolRegistry, ToolResult};
use serde_json::{Value, json};

/// Runs scripts with the tool of a registry.
#[derive(Debug)]
pub(super) struct ToolRunner {
    executor: ToolExecutor,
}

impl ToolRunner {
    pub(super) fn new(registry: Arc<ToolRegistry>) -> Self {
        Self { executor: ToolExecutor::new(registry) }
    }
}

impl ScriptRunner for ToolRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(async move {
            let arguments = arguments(script).to_string();
            let call = ToolCall { context: context.clone(), arguments: arguments.into() };
            self.executor.execute(call).await.map(|result| outcome(&result))
        })
    }
}

fn arguments(script: &Script) -> Value {
    let mut arguments = json!({
        "script": script.code(),
        "timeout_seconds": script.timeout().as_secs(),
    });
    if let Some(input) = script.input() {
        arguments["input_data"] = Value::from(input);
    }
    let packages: Vec<_> = script.packages().iter().collect();
    if !packages.is_empty() {
        arguments["pip_packages"] = Value::from(packages);
    }
    arguments
}

fn outcome(result: &ToolResult) -> ScriptOutcome {
    let details = result.details.clone().unwrap_or_default();
    let text = |key: &str| details[key].as_str().map(str::to_owned);
    let exit_code = details["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
    let mechanism = text("isolation").or_else(|| result.ran_on.clone());
    ScriptOutcome {
        // The text of a successful script is its stdout.
        stdout: text("stdout").unwrap_or_else(|| result.to_text().into_owned()),
        stderr: text("stderr").unwrap_or_default(),
        exit_code: exit_code.unwrap_or_else(|| i32::from(result.is_error)),
        ended_by: serde_json::from_value(details["endedBy"].clone()).unwrap_or_default(),
        elapsed: Duration::from_millis(details["elapsedMs"].as_u64().unwrap_or_default()),
        isolation: Isolation {
            mechanism: mechanism.unwrap_or_else(|| "unknown".to_owned()),
            gaps: Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_scripts::{EXECUTE_PYTHON_SCRIPT, ExecutePythonScript, Requirements, ScriptLimit};

    use super::*;

    /// A runner whose scripts print their input to stdout and end with an exit code.
    struct Echo {
        exit_code: i32,
        ended_by: Option<ScriptLimit>,
    }

    impl ScriptRunner for Echo {
        fn run<'a>(
            &'a self,
            script: &'a Script,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
            let outcome = ScriptOutcome {
                stdout: script.input().unwrap_or_default().to_owned(),
                stderr: script.packages().iter().collect::<Vec<_>>().join(","),
                exit_code: self.exit_code,
                ended_by: self.ended_by,
                elapsed: script.timeout(),
                isolation: Isolation { mechanism: "a sandbox".to_owned(), gaps: Vec::new() },
            };
            Box::pin(async { Ok(outcome) })
        }
    }

    async fn run(runner: Echo, input: &str) -> ScriptOutcome {
        let registry = Arc::new(ToolRegistry::new());
        registry.register(Arc::new(ExecutePythonScript::new(Arc::new(runner), true))).unwrap();
        let packages = Requirements::parse(&["numpy".to_owned()]).unwrap();
        let script =
            Script::new("pass").unwrap().with_input(input).unwrap().with_packages(packages);
        let script = script.with_timeout(Duration::from_secs(7)).unwrap();
        let caller = AgentName::new("cli").unwrap();
        let context = ToolContext::new(EXECUTE_PYTHON_SCRIPT, SessionId::generate(), caller);
        ToolRunner::new(registry).run(&script, &context).await.unwrap()
    }

    #[tokio::test]
    async fn outcome_of_a_tool_equals_that_of_its_runner() {
        for (exit_code, ended_by, input) in [
            (0, None, "42\n"),
            (0, None, ""),
            (3, None, "before the failure"),
            (0, Some(ScriptLimit::Memory), "too much"),
        ] {
            let outcome = run(Echo { exit_code, ended_by }, input).await;
            assert_eq!(outcome.stdout, input);
            assert_eq!((outcome.exit_code, outcome.ended_by), (exit_code, ended_by));
            assert_eq!((outcome.stderr.as_str(), outcome.elapsed.as_secs()), ("numpy", 7));
            assert_eq!(outcome.isolation.mechanism, "a sandbox");
        }
    }

    #[test]
    fn result_without_details_is_stdout() {
        let plain = outcome(&ToolResult::text("42"));
        assert_eq!((plain.stdout.as_str(), plain.exit_code), ("42", 0));
        assert_eq!(outcome(&ToolResult::error("no")).exit_code, 1);
    }
}
