//! Failures of reading a page.

use std::time::Duration;

use rockbot_tools::{Executed, ToolFailure};

/// Reason why a page cannot be read through the API. `Display` is for models: it contains no text from
/// outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GithubFailure {
    /// The page does not exist, or the token may not read it.
    #[error("GitHub has no such page, or it is not public; check the URL")]
    NotFound {
        /// `true` if the request had a token.
        with_token: bool,
    },
    /// The requests of this address or token are used up.
    #[error("GitHub limits the requests; try again in {} s", .after.as_secs().max(1))]
    Limited {
        /// Delay before another request.
        after: Duration,
    },
    /// The token is not accepted.
    #[error("GitHub does not accept the token; notify an operator")]
    Credentials,
    /// The API refuses the request.
    #[error("GitHub refuses the request with status {status}")]
    Refused {
        /// Status of the response.
        status: u16,
    },
    /// The page is too large for the API or for this client.
    #[error("the page is too large; read a single file or folder of it")]
    TooLarge,
    /// The API cannot be reached, failed, or did not respond in time.
    #[error("GitHub cannot be reached; try again later")]
    Unreachable,
    /// The response is not what the API documents.
    #[error("GitHub's response cannot be read; notify an operator")]
    Malformed,
}

impl GithubFailure {
    /// Returns `true` if the page itself may be fetched instead, without a token.
    #[must_use]
    pub fn allows_page(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Unreachable | Self::Malformed | Self::Credentials => true,
            Self::NotFound { with_token } => !with_token,
            Self::Refused { .. } | Self::TooLarge => false,
        }
    }
}

impl From<GithubFailure> for ToolFailure {
    fn from(failure: GithubFailure) -> Self {
        let message = failure.to_string();
        match failure {
            GithubFailure::Limited { .. } => Self::Overloaded { message },
            GithubFailure::Unreachable => Self::Unavailable { message, executed: Executed::No },
            GithubFailure::NotFound { .. }
            | GithubFailure::Credentials
            | GithubFailure::Refused { .. }
            | GithubFailure::TooLarge
            | GithubFailure::Malformed => Self::failed(message),
        }
    }
}
