//! Why a call has no result, and the one place that turns that into words on the wire.

use std::{error::Error, fmt, time::Duration};

use rockbot_contracts::{Executed, ToolCallId, ToolError, ToolErrorCode};
use rockbot_store::{DocumentError, StoreError};
use tracing::warn;

/// Why a call has no result.
///
/// `Display` is the short text for a model and a caller: no hosts, no paths of the handler, no
/// stack. The chain of causes is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ToolFailure {
    /// No tool of that name.
    #[error("tool not found: {name}")]
    NotFound {
        /// The name that was asked for.
        name: String,
    },
    /// The arguments don't fit the schema, or can't be read at all.
    #[error("invalid arguments: {message}")]
    InvalidArguments {
        /// Where, and what was expected.
        message: String,
    },
    /// The deadline passed.
    #[error("timeout")]
    TimedOut {
        /// How long the caller had.
        after: Duration,
        /// Whether the tool ran.
        executed: Executed,
        /// Whether running it again does no harm.
        repeatable: bool,
    },
    /// The tool failed.
    #[error("{message}")]
    Failed {
        /// For the model.
        message: String,
        /// For the log.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The asker gave up.
    #[error("cancelled")]
    Cancelled {
        /// Whether the tool ran.
        executed: Executed,
    },
    /// A profile, a hook or a limit refused the call.
    #[error("not permitted: {reason}")]
    NotPermitted {
        /// Why.
        reason: String,
    },
    /// No room now.
    #[error("overloaded: {message}")]
    Overloaded {
        /// What was full.
        message: String,
    },
    /// Nobody serves the tool now, or the bus is gone.
    #[error("unavailable: {message}")]
    Unavailable {
        /// What is missing.
        message: String,
        /// Whether the tool ran.
        executed: Executed,
    },
    /// It may have run; nobody can say.
    #[error("outcome unknown: {message}")]
    OutcomeUnknown {
        /// What was lost.
        message: String,
    },
    /// The other end of the bus answered with an error.
    #[error("{}", .error.message)]
    Remote {
        /// What it said.
        error: Box<ToolError>,
        /// Which process said it.
        ran_on: Option<String>,
    },
}

impl ToolFailure {
    /// A failure of the tool with words for the model.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None }
    }

    /// A failure of the tool with words for the model and a cause for the log.
    #[must_use]
    pub fn caused(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { message: message.into(), source: Some(source.into()) }
    }

    /// Arguments that the tool can't use, found after the schema accepted them.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArguments { message: message.into() }
    }

    /// The code on the wire.
    #[must_use]
    pub fn code(&self) -> ToolErrorCode {
        self.classify().0
    }

    /// Whether the tool ran.
    #[must_use]
    pub fn executed(&self) -> Executed {
        self.classify().1
    }

    /// Whether the same call may succeed if sent again, without doing its work twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.classify().2
    }

    /// Code, executed and retryable of every failure: the only place that decides them.
    fn classify(&self) -> (ToolErrorCode, Executed, bool) {
        match self {
            Self::NotFound { .. } => (ToolErrorCode::ToolNotFound, Executed::No, false),
            Self::InvalidArguments { .. } => (ToolErrorCode::InvalidArguments, Executed::No, false),
            Self::TimedOut { executed, repeatable, .. } => {
                (ToolErrorCode::Timeout, *executed, *repeatable || *executed == Executed::No)
            }
            Self::Failed { .. } => (ToolErrorCode::ExecutionFailed, Executed::Yes, false),
            Self::Cancelled { executed } => (ToolErrorCode::Cancelled, *executed, false),
            Self::NotPermitted { .. } => (ToolErrorCode::NotPermitted, Executed::No, false),
            Self::Overloaded { .. } => (ToolErrorCode::Overloaded, Executed::No, true),
            Self::Unavailable { executed, .. } => {
                (ToolErrorCode::Unavailable, *executed, *executed == Executed::No)
            }
            Self::OutcomeUnknown { .. } => {
                (ToolErrorCode::OutcomeUnknown, Executed::Unknown, false)
            }
            Self::Remote { error, .. } => (error.code.clone(), error.executed, error.is_retryable),
        }
    }

    /// The same of a call that may have run before: that it did not begin this time does not mean
    /// that it never did.
    #[must_use]
    pub fn of_a_second_run(mut self) -> Self {
        if let Self::TimedOut { executed, .. } | Self::Cancelled { executed } = &mut self
            && *executed == Executed::No
        {
            *executed = Executed::Unknown;
        }
        self
    }

    /// The same for another asker of the same call; causes become words.
    pub(crate) fn retold(&self) -> Self {
        match self {
            Self::NotFound { name } => Self::NotFound { name: name.clone() },
            Self::InvalidArguments { message } => {
                Self::InvalidArguments { message: message.clone() }
            }
            Self::TimedOut { after, executed, repeatable } => {
                Self::TimedOut { after: *after, executed: *executed, repeatable: *repeatable }
            }
            Self::Failed { message, source } => Self::Failed {
                message: message.clone(),
                source: source.as_deref().map(|source| Chain(source).to_string().into()),
            },
            Self::Cancelled { executed } => Self::Cancelled { executed: *executed },
            Self::NotPermitted { reason } => Self::NotPermitted { reason: reason.clone() },
            Self::Overloaded { message } => Self::Overloaded { message: message.clone() },
            Self::Unavailable { message, executed } => {
                Self::Unavailable { message: message.clone(), executed: *executed }
            }
            Self::OutcomeUnknown { message } => Self::OutcomeUnknown { message: message.clone() },
            Self::Remote { error, ran_on } => {
                Self::Remote { error: error.clone(), ran_on: ran_on.clone() }
            }
        }
    }

    /// The words that a model and a caller read, where there are any beside the kind of failure.
    pub(crate) fn words_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::NotFound { name: words }
            | Self::InvalidArguments { message: words }
            | Self::Failed { message: words, .. }
            | Self::NotPermitted { reason: words }
            | Self::Overloaded { message: words }
            | Self::Unavailable { message: words, .. }
            | Self::OutcomeUnknown { message: words } => Some(words),
            Self::Remote { error, .. } => Some(&mut error.message),
            Self::TimedOut { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// The error as it crosses the bus.
    #[must_use]
    pub fn to_wire(&self, tool_call_id: ToolCallId, tool_name: &str) -> ToolError {
        let (code, executed, is_retryable) = self.classify();
        let message = shorten(&self.to_string());
        let tool_name = tool_name.to_owned();
        ToolError { tool_call_id, tool_name, code, message, is_retryable, executed }
    }

    /// What the model reads in place of a result.
    #[must_use]
    pub fn model_text(&self) -> String {
        format!("(tool failed: {})", shorten(&self.to_string()))
    }

    /// Which process failed, where that is known.
    #[must_use]
    pub fn ran_on(&self) -> Option<&str> {
        match self {
            Self::Remote { ran_on, .. } => ran_on.as_deref(),
            _ => None,
        }
    }

    /// The failure with its causes, for the log.
    #[must_use]
    pub fn chain(&self) -> Chain<'_> {
        Chain(self)
    }
}

impl From<StoreError> for ToolFailure {
    /// Why it failed names hosts and files, so it goes to the log and not to the model.
    fn from(error: StoreError) -> Self {
        warn!(%error, "a tool can't use the store");
        let (message, executed) = ("the store is out of reach now; try again later", Executed::No);
        match error {
            StoreError::Unavailable { .. } | StoreError::Closed => {
                Self::Unavailable { message: message.to_owned(), executed }
            }
            StoreError::Unconfirmed { .. } => Self::OutcomeUnknown {
                message: "the store did not say whether it was done; look before you try again"
                    .to_owned(),
            },
            StoreError::TooLarge { .. } => Self::invalid(error.to_string()),
            StoreError::Full { .. } => Self::failed("the store is full; tell an operator"),
            StoreError::Unusable { .. } => {
                Self::failed("what is stored there can't be read; tell an operator")
            }
        }
    }
}

impl From<DocumentError> for ToolFailure {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Name(error) => Self::invalid(error.to_string()),
            DocumentError::Store(error) => error.into(),
        }
    }
}

/// The longest error message on the wire, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

fn shorten(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((cut, _)) => format!("{}…", &message[..cut]),
        None => message.to_owned(),
    }
}

/// Displays an error and all its causes on one line.
#[derive(Debug)]
pub struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_retryable_only_where_nothing_can_run_twice() {
        let timeout = |executed, repeatable| {
            ToolFailure::TimedOut { after: Duration::from_secs(1), executed, repeatable }
                .is_retryable()
        };
        assert!(timeout(Executed::No, false));
        assert!(timeout(Executed::Yes, true));
        assert!(!timeout(Executed::Yes, false));
        assert!(!timeout(Executed::Unknown, false));
    }

    #[test]
    fn model_texts_are_short() {
        let failure = ToolFailure::failed("x".repeat(1_000_000));
        assert!(failure.model_text().len() < 2100);
        let failure = ToolFailure::TimedOut {
            after: Duration::from_secs(60),
            executed: Executed::Yes,
            repeatable: false,
        };
        assert_eq!(failure.model_text(), "(tool failed: timeout)");
    }
}
