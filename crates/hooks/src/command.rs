//! Programs that operators run around calls.
//!
//! A program gets the call as one JSON object on its standard input. Before a call, exit code 0
//! allows it; any other code with text on standard output refuses it, and the text is the reason
//! that the model reads. A program that can't be started, runs out of time, is killed by a signal,
//! or fails without a reason has failed: the section's `on_failure` decides. After a call, a failure
//! is only logged.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use metrics::counter;
use parking_lot::Mutex;
use rockbot_child::ProcessGroup;
use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{FinishedCall, ToolContext, ToolFilter, ToolHook, Verdict};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdout, Command},
    sync::Semaphore,
    time::timeout,
};
use tracing::warn;

use crate::{
    failure_policy::OnFailure,
    record::{CallRecord, OutcomeRecord, arguments_value},
};

/// Maximum number of concurrent runs of one section. Further calls wait, within the time limit.
const CONCURRENCY: usize = 16;
/// Maximum size of a program's standard output that is kept, in bytes.
const MAX_OUTPUT: usize = 4096;
/// Time limit for reading output after the program exited: another process may hold its pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// Maximum length of a reason for a model, in characters.
const MAX_REASON: usize = 500;
/// Environment variables that every program gets.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// When a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Moment {
    Before,
    After,
}

/// A hook that runs a program before or after calls.
#[derive(Debug)]
pub struct HookCommand {
    pub(crate) moment: Moment,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) tools: ToolFilter,
    pub(crate) timeout: Duration,
    pub(crate) on_failure: OnFailure,
    pub(crate) permits: Arc<Semaphore>,
}

/// Standard input of a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    event: Moment,
    #[serde(flatten)]
    call: CallRecord<'a>,
    /// As JSON, or as text if they are not valid JSON.
    arguments: Value,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeRecord<'a>>,
}

/// A program that could not do its work.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("cannot run the program: {0}")]
    Run(#[from] io::Error),
    #[error("no result within the time limit")]
    TimedOut,
    #[error("ended with {0} and gave no reason on standard output")]
    Failed(ExitStatus),
    #[error("could not be stopped")]
    Stuck,
}

impl HookCommand {
    /// Returns the permits of a command.
    pub(crate) fn permits() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(CONCURRENCY))
    }

    /// Returns whether the program runs at `moment` for this call.
    fn applies(&self, moment: Moment, context: &ToolContext) -> bool {
        self.moment == moment && self.tools.permits(&context.tool_name)
    }

    /// Runs the program on a call. Returns the reason if it refuses the call.
    async fn run(&self, input: &Input<'_>) -> Result<Option<String>, HookError> {
        let input = serde_json::to_vec(input).map_err(io::Error::from)?;
        // Dropping the future on a timeout kills the program and what it started.
        let (status, output) =
            timeout(self.timeout, self.spawn(input)).await.map_err(|_| HookError::TimedOut)??;
        match reason(&output) {
            _ if status.success() => Ok(None),
            // Killed by a signal, so it did not decide.
            _ if status.code().is_none() => Err(HookError::Failed(status)),
            None => Err(HookError::Failed(status)),
            reason => Ok(reason),
        }
    }

    async fn spawn(&self, input: Vec<u8>) -> Result<(ExitStatus, Vec<u8>), HookError> {
        let _permit = self.permits.acquire().await.map_err(io::Error::other)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for name in ENVIRONMENT.into_iter().chain(self.environment.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let (mut group, pipes) = ProcessGroup::spawn(&mut command)?;
        let output = Mutex::new(Vec::new());
        let write = async {
            if let Some(mut stdin) = pipes.stdin {
                // A program may exit without reading its input.
                let _ = stdin.write_all(&input).await;
            }
        };
        let read = async {
            if let Some(stdout) = pipes.stdout {
                read_start(stdout, &output).await;
            }
        };
        let status = {
            let mut transfer = pin!(async { tokio::join!(write, read) });
            let transferred = tokio::select! {
                _ = &mut transfer => true,
                () = group.wait_for_leader() => false,
            };
            group.wait_for_leader().await;
            // Kills what the program left running, which may hold its pipes open.
            let status = group.finish().await.ok_or(HookError::Stuck)?;
            if !transferred {
                let _ = timeout(OUTPUT_GRACE, transfer).await;
            }
            status
        };
        Ok((status, output.into_inner()))
    }

    /// Logs and counts a failure.
    fn report(&self, context: &ToolContext, error: &HookError) {
        counter!("rockbot_hook_runs_total", "outcome" => "failed").increment(1);
        warn!(
            program = self.program,
            moment = ?self.moment,
            tool_call_id = %context.tool_call_id,
            tool = %context.tool_name,
            %error,
            "hook command failed"
        );
    }
}

impl ToolHook for HookCommand {
    fn before_execution<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if !self.applies(Moment::Before, context) {
                return Verdict::Allow;
            }
            let input = Input {
                event: Moment::Before,
                call: CallRecord::new(context, arguments),
                arguments: arguments_value(arguments),
                outcome: None,
            };
            match self.run(&input).await {
                Ok(None) => {
                    counter!("rockbot_hook_runs_total", "outcome" => "allowed").increment(1);
                    Verdict::Allow
                }
                Ok(Some(reason)) => {
                    counter!("rockbot_hook_runs_total", "outcome" => "refused").increment(1);
                    Verdict::Refuse { reason }
                }
                Err(error) => {
                    self.report(context, &error);
                    match self.on_failure {
                        OnFailure::Allow => Verdict::Allow,
                        OnFailure::Refuse => Verdict::Refuse {
                            reason: "a check that must precede this call failed".to_owned(),
                        },
                    }
                }
            }
        })
    }

    fn after_execution<'a>(&'a self, call: &'a FinishedCall<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let not_found = call.end.error == Some(ToolErrorCode::ToolNotFound);
            if not_found || !self.applies(Moment::After, call.context) {
                return;
            }
            let input = Input {
                event: Moment::After,
                call: CallRecord::new(call.context, call.arguments),
                arguments: arguments_value(call.arguments),
                outcome: Some(OutcomeRecord::new(call.end)),
            };
            match self.run(&input).await {
                Ok(None) => {
                    counter!("rockbot_hook_runs_total", "outcome" => "finished").increment(1);
                }
                Ok(Some(reason)) => {
                    counter!("rockbot_hook_runs_total", "outcome" => "failed").increment(1);
                    warn!(program = self.program, reason, "hook command failed after a call");
                }
                Err(error) => self.report(call.context, &error),
            }
        })
    }
}

/// Reads to the end, so that the program is never blocked, and keeps the first [`MAX_OUTPUT`] bytes.
async fn read_start(mut stdout: ChildStdout, output: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stdout.read(&mut buffer).await {
        let mut output = output.lock();
        let rest = MAX_OUTPUT.saturating_sub(output.len()).min(length);
        output.extend_from_slice(&buffer[..rest]);
    }
}

/// Returns the first characters of a program's output on one line, without control characters;
/// `None` if nothing is left.
fn reason(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let printable = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let joined = printable.collect::<String>();
    let words = joined.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = words.chars().take(MAX_REASON).collect();
    (!reason.is_empty()).then_some(reason)
}
