//! How a script ended, as whoever followed it knows.

use std::time::Duration;

use rockbot_contracts::script::ScriptLimit;

use crate::runner::{Isolation, ScriptOutcome};

/// What became of a script.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit_code: i32,
    pub(crate) ended_by: Option<ScriptLimit>,
    pub(crate) elapsed: Duration,
}

impl Ended {
    /// The same with what isolated it.
    pub(crate) fn within(self, isolation: &Isolation) -> ScriptOutcome {
        let Self { stdout, stderr, exit_code, ended_by, elapsed } = self;
        let isolation = isolation.clone();
        ScriptOutcome { stdout, stderr, exit_code, ended_by, elapsed, isolation }
    }
}
