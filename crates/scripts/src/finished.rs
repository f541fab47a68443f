//! A finished script, as reported by the runner that followed it.

use std::time::Duration;

use rockbot_contracts::script::ScriptLimit;

use crate::runner::{Isolation, ScriptOutcome};

/// A [`ScriptOutcome`] without the isolation it ran under.
#[derive(Debug)]
pub(crate) struct FinishedScript {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit_code: i32,
    pub(crate) ended_by: Option<ScriptLimit>,
    pub(crate) elapsed: Duration,
}

impl FinishedScript {
    /// Adds the isolation under which the script ran.
    pub(crate) fn into_outcome(self, isolation: &Isolation) -> ScriptOutcome {
        let Self { stdout, stderr, exit_code, ended_by, elapsed } = self;
        let isolation = isolation.clone();
        ScriptOutcome { stdout, stderr, exit_code, ended_by, elapsed, isolation }
    }
}
