//! Failures of a provider, and what they mean for a call.

use std::time::Duration;

use rockbot_tools::{Executed, ToolFailure};
use tokio::time::Instant;

/// Reason why a provider has no result. `Display` is for models: it contains no text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SearchFailure {
    /// The provider does not accept the key, or gives no access.
    #[error("access is refused; notify an operator")]
    Credentials,
    /// The requests of a longer period are used up.
    #[error("the quota is used up for {}", approximate(.until.saturating_duration_since(Instant::now())))]
    Quota {
        /// Time at which requests are possible again.
        until: Instant,
    },
    /// Too many requests at once.
    #[error("too many searches at once; try again in {}", approximate(*.after))]
    Limited {
        /// Delay before another search.
        after: Duration,
    },
    /// The provider does not accept the query.
    #[error("the query is refused with status {status}; shorten or rephrase it")]
    Refused {
        /// Status of the response, 400 to 499.
        status: u16,
    },
    /// The provider cannot be reached, failed, or did not respond in time.
    #[error("the service cannot be reached; try again later")]
    Unreachable,
    /// The response is not what the provider documents.
    #[error("the response cannot be read; notify an operator")]
    Malformed,
}

impl SearchFailure {
    /// Returns `true` if another provider may have results for the same query.
    #[must_use]
    pub fn allows_next(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Converts the failure for the caller of the tool, with `message` for the model. A search has no
    /// effects, so a call without results counts as not executed wherever its code permits that.
    pub(super) fn into_tool_failure(self, message: String) -> ToolFailure {
        match self {
            Self::Credentials | Self::Malformed => ToolFailure::failed(message),
            Self::Quota { .. } | Self::Unreachable => {
                ToolFailure::Unavailable { message, executed: Executed::No }
            }
            Self::Limited { .. } => ToolFailure::Overloaded { message },
            Self::Refused { .. } => ToolFailure::invalid(message),
        }
    }

    /// Returns the position when several providers failed: the failure that most likely passes comes
    /// first and decides the code of the call.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Refused { .. } => 0,
            Self::Limited { .. } => 1,
            Self::Unreachable => 2,
            Self::Quota { .. } => 3,
            Self::Malformed => 4,
            Self::Credentials => 5,
        }
    }
}

/// Formats a duration in its largest sensible unit, rounded up.
pub(crate) fn approximate(duration: Duration) -> String {
    let seconds = duration.as_millis().div_ceil(1000).max(1);
    match seconds {
        0..=120 => format!("{seconds} s"),
        121..=7_200 => format!("{} min", seconds.div_ceil(60)),
        7_201..=172_800 => format!("{} h", seconds.div_ceil(3_600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolErrorCode;

    use super::*;

    #[test]
    fn failure_maps_to_code_and_execution_status() {
        let quota = SearchFailure::Quota { until: Instant::now() + Duration::from_secs(90_000) };
        for (failure, code, executed, retryable) in [
            (SearchFailure::Credentials, ToolErrorCode::ExecutionFailed, Executed::Yes, false),
            (quota, ToolErrorCode::Unavailable, Executed::No, true),
            (
                SearchFailure::Limited { after: Duration::from_secs(2) },
                ToolErrorCode::Overloaded,
                Executed::No,
                true,
            ),
            (
                SearchFailure::Refused { status: 422 },
                ToolErrorCode::InvalidArguments,
                Executed::No,
                false,
            ),
            (SearchFailure::Unreachable, ToolErrorCode::Unavailable, Executed::No, true),
            (SearchFailure::Malformed, ToolErrorCode::ExecutionFailed, Executed::Yes, false),
        ] {
            let text = failure.to_string();
            let mapped = failure.into_tool_failure(text.clone());
            assert_eq!(mapped.code(), code, "{text}");
            assert_eq!((mapped.executed(), mapped.is_retryable()), (executed, retryable), "{text}");
        }
    }

    #[test]
    fn duration_is_rounded_up() {
        for (millis, expected) in [
            (0, "1 s"),
            (1_001, "2 s"),
            (121_000, "3 min"),
            (7_300_000, "3 h"),
            (2_592_000_000, "30 days"),
        ] {
            assert_eq!(approximate(Duration::from_millis(millis)), expected);
        }
    }
}
