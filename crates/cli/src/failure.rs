//! The outcome of a command: its exit code and error message.

use std::{fmt, io};

use rockbot_agent::{ConversationRequestError, SendError};
use rockbot_contracts::{ToolErrorCode, conversation::ConversationErrorCode, identity::User};
use rockbot_service::exit;
use rockbot_store::{StoreError, StoreUrl};

/// A failed command: its exit code and error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) cause: anyhow::Error,
}

/// An error for a right that the broker user lacks.
#[derive(Debug)]
struct Denied(String);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Denied {}

/// The broker's code for a missing permission, at the beginning of its error texts.
const ACCESS_REFUSED: &str = "ACCESS_REFUSED";
/// The text of the broker for a wrong name or password, which has the same code.
const LOGIN_REFUSED: &str = "Login was refused";

pub(crate) type Outcome = Result<u8, Failure>;

/// Adds an exit code to an error.
pub(crate) trait OrExit<T> {
    fn or_exit(self, code: u8) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, code: u8) -> Result<T, Failure> {
        self.map_err(|cause| Failure { code, cause: cause.into() })
    }
}

impl Failure {
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: exit::USAGE, cause: anyhow::anyhow!("{message}") }
    }

    pub(crate) fn unavailable(message: impl fmt::Display) -> Self {
        Self { code: exit::UNAVAILABLE, cause: anyhow::anyhow!("{message}") }
    }

    /// Returns the failure for the store in the configuration key `key` that cannot be opened: unavailable
    /// when it cannot be reached, otherwise a configuration error.
    pub(crate) fn store(key: &str, url: &StoreUrl, error: &StoreError) -> Self {
        let message = format!("{key}: {url}: {error}");
        match error {
            StoreError::Unavailable { .. } => Self::unavailable(message),
            _ => Self::usage(message),
        }
    }

    /// Returns the failure for a right that the broker user lacks.
    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self { code: exit::UNAVAILABLE, cause: Denied(message.into()).into() }
    }

    /// Adds the broker user to take if the present one lacks a right.
    pub(crate) fn name_user(self, user: &User, namespace: &str) -> Self {
        let text = format!("{:#}", self.cause);
        let is_denied = self.cause.is::<Denied>()
            || (text.contains(ACCESS_REFUSED) && !text.contains(LOGIN_REFUSED));
        let name = user.name(namespace);
        if !is_denied || text.contains(&name) {
            return self;
        }
        Self { code: self.code, cause: anyhow::anyhow!("{text}; use the broker user {name}") }
    }
}

/// Only for errors from writing the output: others get their exit code where they occur.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = exit::unwritten(&error);
        Self { code, cause: anyhow::Error::new(error).context("cannot write the output") }
    }
}

/// Returns the exit code for a failed call.
pub(crate) fn exit_code(error: &ToolErrorCode) -> u8 {
    match error {
        ToolErrorCode::InvalidArguments => exit::USAGE,
        ToolErrorCode::ToolNotFound | ToolErrorCode::Unavailable => exit::UNAVAILABLE,
        ToolErrorCode::Timeout | ToolErrorCode::Overloaded => exit::TEMPORARY,
        ToolErrorCode::ExecutionFailed
        | ToolErrorCode::Cancelled
        | ToolErrorCode::NotPermitted
        | ToolErrorCode::OutcomeUnknown
        | ToolErrorCode::Other(_) => exit::ANSWERED_WITH_ERROR,
    }
}

/// Of requests about conversations. The exit code says whether a repeated request may succeed.
impl From<ConversationRequestError> for Failure {
    fn from(error: ConversationRequestError) -> Self {
        let code = match &error {
            ConversationRequestError::Refused { code, .. } => match code {
                ConversationErrorCode::InvalidRequest => exit::USAGE,
                ConversationErrorCode::Unavailable => exit::UNAVAILABLE,
                ConversationErrorCode::Busy => exit::TEMPORARY,
                ConversationErrorCode::NotFound
                | ConversationErrorCode::NotPermitted
                | ConversationErrorCode::Unreadable
                | ConversationErrorCode::Other => exit::ANSWERED_WITH_ERROR,
            },
            ConversationRequestError::Silent { .. }
            | ConversationRequestError::Send(SendError::TooManyPending) => exit::TEMPORARY,
            ConversationRequestError::Send(_)
            | ConversationRequestError::UnexpectedResponse
            | ConversationRequestError::Closed => exit::UNAVAILABLE,
        };
        Self { code, cause: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_right_names_the_user_to_take() {
        let text =
            |failure: Failure, user| format!("{:#}", failure.name_user(&user, "fleet").cause);
        let denied = || Failure::denied("this user may not read a");
        assert!(text(denied(), User::Operator).ends_with("; use the broker user fleet.operator"));
        let refused = || Failure::unavailable("queue a: ACCESS_REFUSED - access to queue 'a'");
        assert!(text(refused(), User::Cli).ends_with("; use the broker user fleet.cli"));
        for other in ["no route", "ACCESS_REFUSED - Login was refused using PLAIN"] {
            assert_eq!(text(Failure::unavailable(other), User::Cli), other);
        }
    }
}
