//! `execute_python_script`: the tool that a model calls.

use std::{fmt::Write, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{
    Guide, Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    output::end_of,
    requirement::{MAX_REQUIREMENTS, Requirements},
    runner::{
        DEFAULT_TIMEOUT, INPUT_FILE_VARIABLE, INPUT_VARIABLE, InvalidScript,
        MAX_ENVIRONMENT_INPUT_BYTES, MAX_INPUT_BYTES, MAX_SCRIPT_BYTES, MAX_TIMEOUT, Script,
        ScriptOutcome, ScriptRunner,
    },
};

/// The name of the tool.
pub const EXECUTE_PYTHON_SCRIPT: &str = "execute_python_script";

/// The tool's guide, for models.
pub const GUIDE: Guide = Guide {
    name: "scripts",
    summary: "running Python: input, output, packages, what a script can't reach",
    markdown: include_str!("../guides/scripts.md"),
};

/// The time that a runner may need beside the script's own, such as for fetching an image.
const START_ALLOWANCE: Duration = Duration::from_secs(90);
/// Size limit of a failed script's output beside its stderr.
const MAX_SHOWN_BYTES: usize = 2048;

/// Runs a Python script written by a model, on any runner.
pub struct ExecutePythonScript {
    registration: ToolRegistration,
    runner: Arc<dyn ScriptRunner>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    script: String,
    input_data: Option<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    pip_packages: Vec<String>,
}

impl ExecutePythonScript {
    /// Creates the tool with a runner. If `isolated`, scripts can't reach anything outside their sandbox:
    /// running one twice is harmless, and a lost one is retried.
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, isolated: bool) -> Self {
        Self { registration: registration(isolated), runner }
    }
}

impl Tool for ExecutePythonScript {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    /// # Cancellation
    /// As [`ScriptRunner::run`].
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let script = parse_arguments(arguments)?;
            let outcome = self.runner.run(&script, context).await?;
            Ok(to_tool_result(&script, outcome))
        })
    }

    /// Runners stop their scripts in time and state whether they ran.
    fn enforces_own_deadline(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for ExecutePythonScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutePythonScript").finish_non_exhaustive()
    }
}

fn registration(isolated: bool) -> ToolRegistration {
    let (default, longest) = (DEFAULT_TIMEOUT.as_secs(), MAX_TIMEOUT.as_secs());
    let timeout = START_ALLOWANCE + MAX_TIMEOUT;
    ToolRegistration {
        name: EXECUTE_PYTHON_SCRIPT.to_owned(),
        label: Some("Run a Python script".to_owned()),
        description: format!(
            "Run a Python 3 script and return what it prints to stdout. Every call is a fresh \
             process: no network, no files but its own temporary folder, no state. Print \
             the result; an exit code other than 0 is an error with the end of stderr. Input \
             goes into input_data and is read from the variable {INPUT_VARIABLE}, or, beyond {} \
             KiB, from the file named by {INPUT_FILE_VARIABLE}.",
            MAX_ENVIRONMENT_INPUT_BYTES.div_ceil(1024),
        ),
        tool_description: None,
        parameters: json!({
            "type": "object",
            "properties": {
                "script": {
                    "type": "string", "minLength": 1, "maxLength": MAX_SCRIPT_BYTES,
                    "description": "The Python source.",
                },
                "input_data": {
                    "type": "string", "maxLength": MAX_INPUT_BYTES,
                    "description": "Input of the script, such as JSON or CSV.",
                },
                "timeout_seconds": {
                    "type": "integer", "minimum": 1, "maximum": longest,
                    "description": format!("When to stop it. Default {default}, at most {longest}."),
                },
                "pip_packages": {
                    "type": "array", "items": {"type": "string"}, "maxItems": MAX_REQUIREMENTS,
                    "description": "Packages that it imports, such as \"pandas\" or \
                        \"pandas==2.2.3\", where the runner allows them.",
                },
            },
            "required": ["script"],
            "additionalProperties": false,
        }),
        source: ToolSource::Script,
        hints: hints(isolated),
        timeout_ms: u64::try_from(timeout.as_millis()).ok(),
    }
}

/// Returns the hints of running a script: an isolated one has no effect outside its sandbox.
pub(crate) fn hints(isolated: bool) -> ToolHints {
    ToolHints {
        read_only: false,
        destructive: !isolated,
        idempotent: isolated,
        open_world: !isolated,
    }
}

fn parse_arguments(arguments: Value) -> Result<Script, ToolFailure> {
    let Arguments { script, input_data, timeout_seconds, pip_packages } =
        rockbot_tools::parse_arguments(arguments)?;
    let timeout = timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    build_script(script, input_data, timeout, &pip_packages)
        .map_err(|error| ToolFailure::invalid(error.to_string()))
}

/// Builds a script from the fields of a request.
pub(crate) fn build_script(
    code: String,
    input: Option<String>,
    timeout: Duration,
    packages: &[String],
) -> Result<Script, InvalidScript> {
    let script =
        Script::new(code)?.with_timeout(timeout)?.with_packages(Requirements::parse(packages)?);
    match input {
        Some(input) => script.with_input(input),
        None => Ok(script),
    }
}

/// Returns the result for the model, with details for programs.
fn to_tool_result(script: &Script, outcome: ScriptOutcome) -> ToolResult {
    let mut details = json!({
        "exitCode": outcome.exit_code,
        "stderr": outcome.stderr,
        "endedBy": outcome.ended_by,
        "elapsedMs": u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
        "isolation": outcome.isolation.to_string(),
    });
    let text_is_stdout =
        outcome.exit_code == 0 && outcome.ended_by.is_none() && !outcome.stdout.is_empty();
    if !text_is_stdout {
        details["stdout"] = Value::from(outcome.stdout.as_str());
    }
    let result = match (outcome.exit_code, outcome.ended_by) {
        (0, None) if outcome.stdout.is_empty() => {
            ToolResult::text("(the script printed nothing; print the result)")
        }
        (0, None) => ToolResult::text(outcome.stdout),
        _ => ToolResult::error(failure_text(script, &outcome)),
    };
    result.with_details(details)
}

fn failure_text(script: &Script, outcome: &ScriptOutcome) -> String {
    let mut text = match outcome.ended_by {
        None => format!("(exit code {})", outcome.exit_code),
        Some(ScriptLimit::Output) => "(stopped: it printed too much; print less)".to_owned(),
        Some(ScriptLimit::Memory) => "(stopped: it used too much memory; use less)".to_owned(),
        Some(ScriptLimit::Disk) => {
            "(stopped: it wrote more than its disk holds; write less)".to_owned()
        }
        Some(ScriptLimit::Other) => "(stopped by a limit)".to_owned(),
    };
    if let Some(hint) = input_hint(script) {
        let _ = write!(text, "\n({hint})");
    }
    for (name, stream) in [("stderr", &outcome.stderr), ("stdout", &outcome.stdout)] {
        if !stream.is_empty() {
            let shown = match name {
                "stderr" => stream.as_str(),
                _ => end_of(stream, MAX_SHOWN_BYTES),
            };
            let _ = write!(text, "\n{name}:\n{shown}");
        }
    }
    text
}

/// Returns a hint for a failed script whose input is too large for a variable.
#[must_use]
pub fn input_hint(script: &Script) -> Option<String> {
    let input = script.input().filter(|_| script.environment_input().is_none())?;
    Some(format!(
        "the input has {} bytes and does not fit into a variable, so {INPUT_VARIABLE} is not set: \
         read the file named by {INPUT_FILE_VARIABLE}",
        input.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Isolation;

    #[test]
    fn guide_is_short_and_names_existing_tools() {
        let definition = registration(true);
        assert_eq!(GUIDE.validate([&definition]), [""; 0]);
    }

    fn outcome(exit_code: i32, stdout: &str, stderr: &str) -> ScriptOutcome {
        ScriptOutcome {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            exit_code,
            ended_by: None,
            elapsed: Duration::from_millis(7),
            isolation: Isolation { mechanism: "a sandbox".to_owned(), gaps: Vec::new() },
        }
    }

    fn script() -> Script {
        Script::new("pass").unwrap()
    }

    #[test]
    fn successful_result_is_stdout_only() {
        let result = to_tool_result(&script(), outcome(0, "42\n", "a warning"));
        assert_eq!((result.to_text().as_ref(), result.is_error), ("42\n", false));
        let details = result.details.unwrap();
        assert_eq!((&details["isolation"], details.get("stdout")), (&json!("a sandbox"), None));
        let silent = to_tool_result(&script(), outcome(0, "", ""));
        assert_eq!(silent.details.as_ref().unwrap()["stdout"], "");
        assert!(silent.to_text().contains("printed nothing"));
    }

    #[test]
    fn failed_result_shows_stderr_and_end_of_stdout() {
        let result = to_tool_result(&script(), outcome(3, &"é".repeat(5000), "ValueError: no"));
        let text = result.to_text().into_owned();
        assert!(result.is_error);
        assert!(text.starts_with("(exit code 3)\nstderr:\nValueError: no\nstdout:\né"), "{text}");
        assert!(text.len() < 2200, "{}", text.len());
    }

    #[test]
    fn failed_script_with_large_input_gets_hint() {
        let large = script().with_input("x".repeat(200_000)).unwrap();
        let text = to_tool_result(&large, outcome(1, "", "KeyError")).to_text().into_owned();
        assert!(text.contains("200000 bytes") && text.contains("ROCKBOT_INPUT_FILE"), "{text}");
        let small = script().with_input("x").unwrap();
        let text = to_tool_result(&small, outcome(1, "", "KeyError")).to_text().into_owned();
        assert!(!text.contains("ROCKBOT_INPUT"), "{text}");
    }

    #[test]
    fn invalid_arguments_are_rejected_with_reason() {
        for (arguments, reason) in [
            (json!({"script": ""}), "empty"),
            (json!({"script": "x", "timeout_seconds": 301}), "1 to 300"),
            (json!({"script": "x", "timeout_seconds": 0}), "1 to 300"),
            (json!({"script": "x", "pip_packages": ["x; curl"]}), "not a package"),
            (json!({"script": "x", "pip_packages": ["--index-url=http://x"]}), "not a package"),
            (json!({"script": "x", "pip_packages": ["git+https://x/y"]}), "not a package"),
            (json!({"script": "x", "input_data": "x".repeat(600_000)}), "600000 bytes"),
        ] {
            let failure = parse_arguments(arguments).unwrap_err().to_string();
            assert!(failure.contains(reason), "{failure}");
        }
    }
}
