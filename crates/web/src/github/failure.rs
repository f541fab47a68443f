//! Failures of reading a page.

use std::time::Duration;

use rockbot_tools::{Executed, ToolFailure};

use crate::{page_router::RouteFailure, search::approximate};

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
    #[error("GitHub limits the requests; try again in {}", approximate(*.after))]
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

    /// Converts the failure for a page that is fetched instead, or returns `None` if it is not worth a note
    /// there: a page that GitHub does not have.
    pub(super) fn into_route_failure(self) -> Option<RouteFailure> {
        let cause = match self {
            Self::Limited { after } => format!("is limited for {}", approximate(after)),
            Self::Credentials => "does not accept the token".to_owned(),
            Self::Unreachable => "cannot be reached".to_owned(),
            Self::Malformed => "sent a response that cannot be read".to_owned(),
            Self::NotFound { .. } | Self::Refused { .. } | Self::TooLarge => return None,
        };
        let note = format!("GitHub's API {cause}; this is the page, which may have less");
        Some(RouteFailure { note, failure: self.into() })
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
