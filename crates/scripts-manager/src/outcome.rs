//! The outcome of a script, from the end of its pod.

use std::time::Duration;

use rockbot_contracts::Executed;
use rockbot_scripts::{Isolation, Script, ScriptLimit, ScriptOutcome, with_output};
use rockbot_tools::ToolFailure;
use tracing::warn;

use crate::{
    output::{Output, PodLog},
    pod_phase::ContainerExit,
    termination::{StoppedBy, TerminationMessage},
};

/// The exit code of a killed process.
const KILLED: i32 = 137;

/// Builds the outcome of a script.
pub(crate) struct OutcomeBuilder<'a> {
    pub(crate) script: &'a Script,
    pub(crate) isolation: Isolation,
    pub(crate) log: &'a PodLog,
    /// The time since it was observed running.
    pub(crate) run_time: Duration,
}

impl OutcomeBuilder<'_> {
    /// Builds the outcome of an exited container.
    pub(crate) async fn describe_exit(
        self,
        exit: ContainerExit,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let Some(message) = TerminationMessage::parse(&exit.message) else {
            if exit.was_deleted {
                return Err(pod_lost(Executed::Yes));
            }
            // The script killed its parent process, or wrote its own termination message.
            let limit = (exit.out_of_memory && exit.code != 0).then_some(ScriptLimit::Memory);
            let output = self.log.complete(None).await;
            return Ok(self.build(output, exit.code, exit.message, exit.elapsed, limit));
        };
        // The message is more precise, but can be forged; the cluster's times are in whole seconds.
        let elapsed = message.elapsed.min(exit.elapsed + Duration::from_secs(1));
        let limit = match message.stopped_by {
            StoppedBy::Timeout => {
                let stdout = self.log.complete(Some(message.output_bytes)).await.into_text();
                return Err(with_output(timed_out(self.script), &stdout, &message.stderr));
            }
            StoppedBy::Output => Some(ScriptLimit::Output),
            StoppedBy::Memory => Some(ScriptLimit::Memory),
            StoppedBy::None if exit.out_of_memory && message.code == KILLED => {
                Some(ScriptLimit::Memory)
            }
            StoppedBy::None => None,
        };
        let output_bytes = message.output_bytes;
        let output = self.log.complete(Some(output_bytes)).await;
        if output.bytes.len() < output_bytes && !output.is_over_limit {
            warn!(output_bytes, "script log incomplete; check that `get` on `pods/log` is allowed");
            let message = "the script's output was lost; run it again".to_owned();
            return Err(ToolFailure::Unavailable { message, executed: Executed::Yes });
        }
        Ok(self.build(output, exit.code, message.stderr, elapsed, limit))
    }

    /// Builds the outcome of a pod that the cluster terminated.
    pub(crate) async fn describe_termination(
        self,
        reason: &str,
        message: &str,
        started: bool,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let executed = if started { Executed::Yes } else { Executed::Unknown };
        match reason {
            "DeadlineExceeded" if started => Err(timed_out(self.script)),
            // A shortage of the node is not caused by the script.
            "Evicted" if message.contains("xceed") && !message.contains("low on resource") => {
                let (output, run_time) = (self.log.complete(None).await, self.run_time);
                let limit = Some(ScriptLimit::Disk);
                Ok(self.build(output, KILLED, String::new(), run_time, limit))
            }
            // The chosen node lacks capacity. A node may also report this for a pod that ran, such as
            // after a restart; then the script counts as executed.
            _ if !started
                && (reason.starts_with("OutOf") || reason == "UnexpectedAdmissionError") =>
            {
                Err(ToolFailure::Overloaded { message: NO_CAPACITY.to_owned() })
            }
            _ => {
                warn!(reason, message, "script pod terminated by the cluster");
                let message = "the cluster terminated the script's pod".to_owned();
                Err(ToolFailure::Unavailable { message, executed })
            }
        }
    }

    /// Builds the outcome of a script that printed too much.
    pub(crate) async fn describe_output_limit(self) -> ScriptOutcome {
        let (output, run_time) = (self.log.complete(None).await, self.run_time);
        self.build(output, KILLED, String::new(), run_time, Some(ScriptLimit::Output))
    }

    fn build(
        self,
        output: Output,
        exit_code: i32,
        stderr: String,
        elapsed: Duration,
        ended_by: Option<ScriptLimit>,
    ) -> ScriptOutcome {
        let isolation = self.isolation;
        let ended_by = ended_by.or(output.is_over_limit.then_some(ScriptLimit::Output));
        ScriptOutcome {
            stdout: output.into_text(),
            stderr,
            exit_code,
            ended_by,
            elapsed,
            isolation,
        }
    }
}

/// The message for the model when the cluster has no capacity.
pub(crate) const NO_CAPACITY: &str = "the cluster has no capacity for the script; try again later";

/// Returns the failure of a script whose pod was deleted by someone else or lost with its node.
pub(crate) fn pod_lost(executed: Executed) -> ToolFailure {
    warn!("script pod lost");
    let message = "the script's pod was deleted".to_owned();
    match executed {
        Executed::No => ToolFailure::Unavailable { message, executed },
        _ => ToolFailure::OutcomeUnknown { message },
    }
}

/// Returns the failure of a script that its own timeout stopped.
pub(crate) fn timed_out(script: &Script) -> ToolFailure {
    let after = script.timeout();
    ToolFailure::TimedOut { after, executed: Executed::Yes, repeatable: false }
}
