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
    requirement::{MAX_REQUIREMENTS, Requirements},
    runner::{
        DEFAULT_TIMEOUT, INPUT_FILE_VARIABLE, INPUT_VARIABLE, MAX_ENVIRONMENT_INPUT_BYTES,
        MAX_INPUT_BYTES, MAX_SCRIPT_BYTES, MAX_TIMEOUT, Script, ScriptOutcome, ScriptRunner,
        UnusableScript,
    },
};

/// Its name.
pub const EXECUTE_PYTHON_SCRIPT: &str = "execute_python_script";

/// How to use it, for models.
pub const GUIDE: Guide = Guide {
    name: "scripts",
    summary: "running Python: input, output, packages, what a script can't reach",
    markdown: include_str!("../guides/scripts.md"),
};

/// What a runner may need beside the script's own time, such as an image to be fetched.
const START_ALLOWANCE: Duration = Duration::from_secs(90);
/// How much of what a failed script printed is shown with what it complained about.
const MAX_SHOWN_BYTES: usize = 2048;

/// Runs Python that a model wrote, on whichever runner it is given.
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
    /// The tool on a runner. `contained` says whether its scripts reach nothing but themselves: then
    /// running one twice harms nobody, and a lost one is run again.
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, contained: bool) -> Self {
        Self { registration: registration(contained), runner }
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
            let script = read(arguments)?;
            let outcome = self.runner.run(&script, context).await?;
            Ok(present(&script, outcome))
        })
    }

    /// A runner ends its scripts, and says whether they ran.
    fn keeps_deadline(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for ExecutePythonScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutePythonScript").finish_non_exhaustive()
    }
}

fn registration(contained: bool) -> ToolRegistration {
    let (default, most) = (DEFAULT_TIMEOUT.as_secs(), MAX_TIMEOUT.as_secs());
    let timeout = START_ALLOWANCE + MAX_TIMEOUT;
    ToolRegistration {
        name: EXECUTE_PYTHON_SCRIPT.to_owned(),
        label: Some("Run a Python script".to_owned()),
        description: format!(
            "Run a Python 3 script and return what it prints to stdout. Every call is a fresh \
             process: no network, no files but its own temporary folder, nothing kept. Print \
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
                    "description": "What the script works on, such as JSON or CSV.",
                },
                "timeout_seconds": {
                    "type": "integer", "minimum": 1, "maximum": most,
                    "description": format!("When to end it. Default {default}, at most {most}."),
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
        hints: hints(contained),
        timeout_ms: u64::try_from(timeout.as_millis()).ok(),
    }
}

/// What running a script may do: nothing that anybody notices, where it reaches nothing but itself.
pub(crate) fn hints(contained: bool) -> ToolHints {
    ToolHints {
        read_only: false,
        destructive: !contained,
        idempotent: contained,
        open_world: !contained,
    }
}

fn read(arguments: Value) -> Result<Script, ToolFailure> {
    let Arguments { script, input_data, timeout_seconds, pip_packages } =
        serde_json::from_value(arguments)
            .map_err(|error| ToolFailure::invalid(error.to_string()))?;
    let timeout = timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    script_of(script, input_data, timeout, &pip_packages)
        .map_err(|error| ToolFailure::invalid(error.to_string()))
}

/// The script that somebody asks for.
pub(crate) fn script_of(
    code: String,
    input: Option<String>,
    timeout: Duration,
    packages: &[String],
) -> Result<Script, UnusableScript> {
    let script = Script::new(code)?.within(timeout)?.with_packages(Requirements::parse(packages)?);
    match input {
        Some(input) => script.with_input(input),
        None => Ok(script),
    }
}

/// What the model reads, and facts for programs.
fn present(script: &Script, outcome: ScriptOutcome) -> ToolResult {
    let details = json!({
        "exitCode": outcome.exit_code,
        "stderr": outcome.stderr,
        "endedBy": outcome.ended_by,
        "elapsedMs": u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
        "isolation": outcome.isolation.to_string(),
    });
    let result = match (outcome.exit_code, outcome.ended_by) {
        (0, None) if outcome.stdout.is_empty() => {
            ToolResult::text("(the script printed nothing; print what you want to see)")
        }
        (0, None) => ToolResult::text(outcome.stdout),
        _ => ToolResult::error(complaint(script, &outcome)),
    };
    result.with_details(details)
}

fn complaint(script: &Script, outcome: &ScriptOutcome) -> String {
    let mut text = match outcome.ended_by {
        None => format!("(exit code {})", outcome.exit_code),
        Some(ScriptLimit::Output) => "(ended: it printed more than it may; print less)".to_owned(),
        Some(ScriptLimit::Memory) => "(ended: it took more memory than it may have)".to_owned(),
        Some(ScriptLimit::Disk) => "(ended: it wrote more to its disk than it may)".to_owned(),
        Some(ScriptLimit::Other) => "(ended by a limit)".to_owned(),
    };
    if let Some(hint) = input_hint(script) {
        let _ = write!(text, "\n({hint})");
    }
    for (name, said) in [("stderr", &outcome.stderr), ("stdout", &outcome.stdout)] {
        if !said.is_empty() {
            let end = match name {
                "stderr" => said.as_str(),
                _ => last(said, MAX_SHOWN_BYTES),
            };
            let _ = write!(text, "\n{name}:\n{end}");
        }
    }
    text
}

/// What whoever wrote a script may have missed when it fails: its input is too large for a variable.
#[must_use]
pub fn input_hint(script: &Script) -> Option<String> {
    let input = script.input().filter(|_| script.environment_input().is_none())?;
    Some(format!(
        "the input has {} bytes, more than a variable holds, so {INPUT_VARIABLE} is not set: read \
         the file named by {INPUT_FILE_VARIABLE}",
        input.len()
    ))
}

/// The last of a text, at most so many bytes.
fn last(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Isolation;

    #[test]
    fn the_guide_is_short_and_mentions_what_exists() {
        let definition = registration(true);
        assert_eq!(GUIDE.problems([&definition]), [""; 0]);
    }

    fn outcome(exit_code: i32, stdout: &str, stderr: &str) -> ScriptOutcome {
        ScriptOutcome {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            exit_code,
            ended_by: None,
            elapsed: Duration::from_millis(7),
            isolation: Isolation { by: "a wall".to_owned(), missing: Vec::new() },
        }
    }

    fn script() -> Script {
        Script::new("pass").unwrap()
    }

    #[test]
    fn only_what_it_printed_is_the_result() {
        let result = present(&script(), outcome(0, "42\n", "a warning"));
        assert_eq!((result.to_text().as_ref(), result.is_error), ("42\n", false));
        assert_eq!(result.details.unwrap()["isolation"], "a wall");
        let silent = present(&script(), outcome(0, "", ""));
        assert!(silent.to_text().contains("printed nothing"));
    }

    #[test]
    fn a_failed_script_shows_the_end_of_what_it_complained_about() {
        let result = present(&script(), outcome(3, &"é".repeat(5000), "ValueError: no"));
        let text = result.to_text().into_owned();
        assert!(result.is_error);
        assert!(text.starts_with("(exit code 3)\nstderr:\nValueError: no\nstdout:\né"), "{text}");
        assert!(text.len() < 2200, "{}", text.len());
    }

    #[test]
    fn an_input_that_no_variable_holds_is_told_when_the_script_fails() {
        let large = script().with_input("x".repeat(200_000)).unwrap();
        let text = present(&large, outcome(1, "", "KeyError")).to_text().into_owned();
        assert!(text.contains("200000 bytes") && text.contains("ROCKBOT_INPUT_FILE"), "{text}");
        let small = script().with_input("x").unwrap();
        let text = present(&small, outcome(1, "", "KeyError")).to_text().into_owned();
        assert!(!text.contains("ROCKBOT_INPUT"), "{text}");
    }

    #[test]
    fn arguments_that_no_script_has_are_refused_in_words() {
        for (arguments, words) in [
            (json!({"script": ""}), "empty"),
            (json!({"script": "x", "timeout_seconds": 301}), "1 to 300"),
            (json!({"script": "x", "timeout_seconds": 0}), "1 to 300"),
            (json!({"script": "x", "pip_packages": ["x; curl"]}), "not a package"),
            (json!({"script": "x", "pip_packages": ["--index-url=http://x"]}), "not a package"),
            (json!({"script": "x", "pip_packages": ["git+https://x/y"]}), "not a package"),
            (json!({"script": "x", "input_data": "x".repeat(600_000)}), "600000 bytes"),
        ] {
            let failure = read(arguments).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
        }
    }
}
