//! Status of a finished call, for logs and metrics.

use rockbot_contracts::ToolErrorCode;

use crate::{failure::ToolFailure, result::ToolResult};

/// Status of a finished call.
///
/// `ok`, `tool_error` if the tool reported an error, otherwise the error code. A code that this
/// version does not know becomes `other`, because it is untrusted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallStatus(usize);

static CODES: [ToolErrorCode; ToolErrorCode::KNOWN.len()] = ToolErrorCode::KNOWN;
/// Number of statuses before those of the error codes.
const RESULT_STATUSES: usize = 2;

impl CallStatus {
    /// Number of statuses.
    pub const COUNT: usize = RESULT_STATUSES + ToolErrorCode::KNOWN.len() + 1;

    /// Returns all statuses, in index order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// Returns the status of a call with this outcome.
    #[must_use]
    pub fn from_outcome(outcome: &Result<ToolResult, ToolFailure>) -> Self {
        match outcome {
            Ok(result) if !result.is_error => Self(0),
            Ok(_) => Self(1),
            Err(failure) => Self::from_code(&failure.code()),
        }
    }

    /// Returns the status of a call that failed with this code.
    #[must_use]
    pub fn from_code(code: &ToolErrorCode) -> Self {
        let at = CODES.iter().position(|known| known == code).unwrap_or(CODES.len());
        Self(RESULT_STATUSES + at)
    }

    /// Returns the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self.0 {
            0 => "ok",
            1 => "tool_error",
            at => CODES.get(at - RESULT_STATUSES).map_or("other", ToolErrorCode::as_str),
        }
    }

    /// Returns the index, below [`Self::COUNT`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }

    /// Returns `true` if the call returned a result, including one with `is_error` set.
    #[must_use]
    pub fn is_result(self) -> bool {
        self.0 < RESULT_STATUSES
    }

    /// Returns `true` if the call succeeded.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_unique_indices_and_labels() {
        let mut statuses = vec![
            CallStatus::from_outcome(&Ok(ToolResult::text("4"))),
            CallStatus::from_outcome(&Ok(ToolResult::error("no"))),
        ];
        statuses.extend(CODES.iter().map(CallStatus::from_code));
        statuses.push(CallStatus::from_code(&ToolErrorCode::Other("<newer>".into())));
        let indices: Vec<_> = statuses.iter().map(|status| status.index()).collect();
        assert_eq!(indices, (0..CallStatus::COUNT).collect::<Vec<_>>());
        let labels: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
        assert_eq!((labels[0], labels[1], labels[labels.len() - 1]), ("ok", "tool_error", "other"));
        assert_eq!(labels[2], ToolErrorCode::KNOWN[0].as_str());
    }
}
