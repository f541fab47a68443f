//! The outcome of a command: its exit code and error message.

use std::{fmt, io};

use rockbot_contracts::ToolErrorCode;
use rockbot_service::exit;

/// A failed command: its exit code and error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) cause: anyhow::Error,
}

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
