//! How a call ended, in one of few words.

use rockbot_contracts::ToolErrorCode;

use crate::{failure::ToolFailure, result::ToolResult};

/// How a call ended, as logs and metrics say it: `ok`, `tool_error` for a tool that says that it
/// failed, else the code of the failure, and `other` for a code of a newer peer, which is outside
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallStatus(usize);

static CODES: [ToolErrorCode; ToolErrorCode::KNOWN.len()] = ToolErrorCode::KNOWN;
/// Places before those of the codes.
const BEFORE: usize = 2;

impl CallStatus {
    /// How many there are.
    pub const COUNT: usize = BEFORE + ToolErrorCode::KNOWN.len() + 1;

    /// Every one, in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// Of a call that ended so.
    #[must_use]
    pub fn of(ended: &Result<ToolResult, ToolFailure>) -> Self {
        match ended {
            Ok(result) if !result.is_error => Self(0),
            Ok(_) => Self(1),
            Err(failure) => Self::failed(&failure.code()),
        }
    }

    /// Of a failure with this code.
    #[must_use]
    pub fn failed(code: &ToolErrorCode) -> Self {
        let at = CODES.iter().position(|known| known == code).unwrap_or(CODES.len());
        Self(BEFORE + at)
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self.0 {
            0 => "ok",
            1 => "tool_error",
            at => CODES.get(at - BEFORE).map_or("other", ToolErrorCode::as_str),
        }
    }

    /// Its place among all, below [`Self::COUNT`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }

    /// Whether the call ended with a result, be it one that says that the tool failed.
    #[must_use]
    pub fn is_result(self) -> bool {
        self.0 < BEFORE
    }

    /// Whether the call ended well.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_place_and_a_word_of_its_own() {
        let mut ends = vec![
            CallStatus::of(&Ok(ToolResult::text("4"))),
            CallStatus::of(&Ok(ToolResult::error("no"))),
        ];
        ends.extend(CODES.iter().map(CallStatus::failed));
        ends.push(CallStatus::failed(&ToolErrorCode::Other("<newer>".into())));
        let places: Vec<_> = ends.iter().map(|end| end.index()).collect();
        assert_eq!(places, (0..CallStatus::COUNT).collect::<Vec<_>>());
        let words: Vec<_> = ends.iter().map(|end| end.as_str()).collect();
        assert_eq!((words[0], words[1], words[words.len() - 1]), ("ok", "tool_error", "other"));
        assert_eq!(words[2], ToolErrorCode::KNOWN[0].as_str());
    }
}
