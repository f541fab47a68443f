//! How a command ends: its exit code, and what is said on the way out.

use std::{fmt, io};

use rockbot_contracts::ToolErrorCode;
use rockbot_service::exit;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) cause: anyhow::Error,
}

pub(crate) type Outcome = Result<u8, Failure>;

/// Gives an error an exit code.
pub(crate) trait Exits<T> {
    fn exits(self, code: u8) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Exits<T> for Result<T, E> {
    fn exits(self, code: u8) -> Result<T, Failure> {
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

/// Only writing the output fails like this: other errors get their code where they happen.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = exit::unwritten(&error);
        Self { code, cause: anyhow::Error::new(error).context("cannot write the output") }
    }
}

/// The exit code for a call that failed.
pub(crate) fn code_of(error: &ToolErrorCode) -> u8 {
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
