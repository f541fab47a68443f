//! From how a pod ended to what is answered.

use std::time::Duration;

use rockbot_contracts::Executed;
use rockbot_scripts::{Isolation, Script, ScriptLimit, ScriptOutcome};
use rockbot_tools::ToolFailure;
use tracing::warn;

use crate::{
    last_words::{EndedBy, LastWords},
    output::{Log, Output},
    stage::Exit,
};

/// The exit code of what was killed.
const KILLED: i32 = 137;

/// What is needed to tell how a script ended.
pub(crate) struct Ending<'a> {
    pub(crate) script: &'a Script,
    pub(crate) isolation: Isolation,
    pub(crate) log: &'a Log,
    /// What was read of its log while it ran.
    pub(crate) followed: Output,
    /// Since it was seen to run.
    pub(crate) ran_for: Duration,
}

impl Ending<'_> {
    /// Its container ended.
    pub(crate) async fn exited(mut self, exit: Exit) -> Result<ScriptOutcome, ToolFailure> {
        let words = LastWords::read(&exit.message);
        let Some(words) = words else {
            if exit.was_deleted {
                return Err(vanished(Executed::Yes));
            }
            // It did away with the process that watches it, or wrote its own last words.
            let limit = (exit.out_of_memory && exit.code != 0).then_some(ScriptLimit::Memory);
            let output = self.whole(None).await;
            return Ok(self.outcome(output, exit.code, exit.message, exit.elapsed, limit));
        };
        // Its own clock is finer, and no more to be trusted than it is.
        let elapsed = words.elapsed.min(exit.elapsed + Duration::from_secs(1));
        let limit = match words.ended_by {
            EndedBy::Timeout => return Err(timed_out(self.script)),
            EndedBy::Output => Some(ScriptLimit::Output),
            EndedBy::Memory => Some(ScriptLimit::Memory),
            EndedBy::Itself if exit.out_of_memory && words.code == KILLED => {
                Some(ScriptLimit::Memory)
            }
            EndedBy::Itself => None,
        };
        let printed = words.printed;
        let output = self.whole(Some(printed)).await;
        if output.bytes.len() < printed && !output.is_over {
            warn!(printed, "the log of a script can't be read; is `get` on `pods/log` allowed?");
            let message = "what the script printed was lost".to_owned();
            return Err(ToolFailure::Unavailable { message, executed: Executed::Yes });
        }
        Ok(self.outcome(output, exit.code, words.complaints, elapsed, limit))
    }

    /// The cluster ended its pod.
    pub(crate) async fn ended(
        mut self,
        by: &str,
        why: &str,
        started: bool,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let executed = if started { Executed::Yes } else { Executed::Unknown };
        match by {
            "DeadlineExceeded" if started => Err(timed_out(self.script)),
            // Of what the node is short of, the script is not the cause.
            "Evicted" if why.contains("xceed") && !why.contains("low on resource") => {
                let (output, ran_for) = (self.whole(None).await, self.ran_for);
                let limit = Some(ScriptLimit::Disk);
                Ok(self.outcome(output, KILLED, String::new(), ran_for, limit))
            }
            // The node that was chosen had no room after all. One that says so of a pod that ran, as
            // after its own restart, is no reason to say that nothing was done.
            _ if !started && (by.starts_with("OutOf") || by == "UnexpectedAdmissionError") => {
                Err(ToolFailure::Overloaded { message: NO_ROOM.to_owned() })
            }
            _ => {
                warn!(by, why, "the cluster ended the pod of a script");
                let message = "the cluster ended the script's pod".to_owned();
                Err(ToolFailure::Unavailable { message, executed })
            }
        }
    }

    /// It printed more than it may.
    pub(crate) async fn printed_too_much(mut self) -> ScriptOutcome {
        let (output, ran_for) = (self.whole(None).await, self.ran_for);
        self.outcome(output, KILLED, String::new(), ran_for, Some(ScriptLimit::Output))
    }

    async fn whole(&mut self, printed: Option<usize>) -> Output {
        self.log.whole(std::mem::take(&mut self.followed), printed).await
    }

    fn outcome(
        self,
        output: Output,
        exit_code: i32,
        stderr: String,
        elapsed: Duration,
        ended_by: Option<ScriptLimit>,
    ) -> ScriptOutcome {
        let isolation = self.isolation;
        let ended_by = ended_by.or(output.is_over.then_some(ScriptLimit::Output));
        let stdout = String::from_utf8(output.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        ScriptOutcome { stdout, stderr, exit_code, ended_by, elapsed, isolation }
    }
}

/// What a model is told when the cluster is full.
pub(crate) const NO_ROOM: &str = "the cluster has no room for the script now";

/// Somebody deleted the pod, or its node is gone.
pub(crate) fn vanished(executed: Executed) -> ToolFailure {
    warn!("the pod of a script was deleted by somebody else");
    let message = "the script's pod was deleted".to_owned();
    match executed {
        Executed::No => ToolFailure::Unavailable { message, executed },
        _ => ToolFailure::OutcomeUnknown { message },
    }
}

/// Its own time-out ended it.
pub(crate) fn timed_out(script: &Script) -> ToolFailure {
    let after = script.timeout();
    ToolFailure::TimedOut { after, executed: Executed::Yes, repeatable: false }
}
