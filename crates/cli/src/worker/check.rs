//! Outcomes of the checks.

use std::fmt;

/// Outcome of one check, with a detail for people.
pub(super) type Verdict = Result<String, Problem>;

/// Reason why a check did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// The worker does not keep the promise.
    Failed(String),
    /// The check needs something that this command does not have.
    Skipped(String),
}

/// A check with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
}

/// Status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Failed,
    Skipped,
}

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Check {
    pub(super) fn status(&self) -> Status {
        match &self.verdict {
            Ok(_) => Status::Ok,
            Err(Problem::Failed(_)) => Status::Failed,
            Err(Problem::Skipped(_)) => Status::Skipped,
        }
    }

    /// Returns the detail of a passed check, or the reason of another.
    pub(super) fn detail(&self) -> &str {
        match &self.verdict {
            Ok(text) | Err(Problem::Failed(text) | Problem::Skipped(text)) => text,
        }
    }
}

/// Returns the outcome of a broken promise.
pub(super) fn failed<T>(reason: impl fmt::Display) -> Result<T, Problem> {
    Err(Problem::Failed(reason.to_string()))
}

/// Returns the outcome of a check that cannot be made.
pub(super) fn skipped<T>(reason: impl fmt::Display) -> Result<T, Problem> {
    Err(Problem::Skipped(reason.to_string()))
}
