//! Failures of calls and their representation on the wire.

use std::{error::Error, fmt, time::Duration};

use rockbot_contracts::{
    CallStages, Executed, ToolCallId, ToolError, ToolErrorCode, outside_text::stripped,
};
use rockbot_store::{DocumentError, StoreError};
use tracing::warn;

/// Reason why a call has no result.
///
/// `Display` is a short text for models and callers: it contains no host names, no paths of the tool
/// handler and no stack traces. The chain of causes is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ToolFailure {
    /// No tool has the name.
    #[error("tool not found: {name}")]
    NotFound {
        /// Requested name.
        name: String,
    },
    /// The arguments cannot be parsed or do not match the schema.
    #[error("invalid arguments: {message}")]
    InvalidArguments {
        /// Location of the error, and the expected value.
        message: String,
    },
    /// The deadline passed.
    #[error("timeout")]
    TimedOut {
        /// Time that the caller had set.
        after: Duration,
        /// Execution status: `no`, `yes` or `unknown`.
        executed: Executed,
        /// `true` if running the tool again is harmless.
        repeatable: bool,
    },
    /// The tool failed.
    #[error("{message}")]
    Failed {
        /// Message for the model.
        message: String,
        /// Cause, for the log.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The caller cancelled the call.
    #[error("cancelled")]
    Cancelled {
        /// Execution status: `no`, `yes` or `unknown`.
        executed: Executed,
    },
    /// A profile, a hook or an approver refused the call.
    #[error("not permitted: {reason}")]
    NotPermitted {
        /// Reason, for the model.
        reason: String,
    },
    /// A limit was reached.
    #[error("overloaded: {message}")]
    Overloaded {
        /// The limit that was reached.
        message: String,
    },
    /// No handler is available, or the bus is down.
    #[error("unavailable: {message}")]
    Unavailable {
        /// The missing part.
        message: String,
        /// Execution status: `no`, `yes` or `unknown`.
        executed: Executed,
    },
    /// The tool may have run.
    #[error("outcome unknown: {message}")]
    OutcomeUnknown {
        /// Cause.
        message: String,
    },
    /// The call was stopped after it had produced output.
    #[error("{failure}\n{output}")]
    WithOutput {
        /// The failure, such as [`TimedOut`](Self::TimedOut).
        failure: Box<ToolFailure>,
        /// The output until then, for the model. Untrusted; bounded by the tool.
        output: String,
    },
    /// The tool handler replied with an error.
    #[error("{}", .error.message)]
    Remote {
        /// The error it sent.
        error: Box<ToolError>,
        /// Name of the process that sent it.
        ran_on: Option<String>,
    },
}

impl ToolFailure {
    /// Creates a failure of the tool with a message for the model.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None }
    }

    /// Creates a failure of the tool with a message for the model and a cause for the log.
    #[must_use]
    pub fn failed_with_source(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { message: message.into(), source: Some(source.into()) }
    }

    /// Creates a failure for arguments that match the schema but are not usable.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArguments { message: message.into() }
    }

    /// Returns the error code on the wire.
    #[must_use]
    pub fn code(&self) -> ToolErrorCode {
        self.classify().0
    }

    /// Returns whether the tool ran.
    #[must_use]
    pub fn executed(&self) -> Executed {
        self.classify().1
    }

    /// Returns `true` if the same call may succeed when sent again, without running its work twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.classify().2
    }

    /// Returns the code, `executed` and `retryable`. They are decided only here.
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
            Self::WithOutput { failure, .. } => failure.classify(),
            Self::Remote { error, .. } => (error.code.clone(), error.executed, error.is_retryable),
        }
    }

    /// Converts the failure of a call that did not start here, but may have run elsewhere or earlier:
    /// `executed: no` becomes `unknown`. Other failures are returned unchanged.
    #[must_use]
    pub fn into_possibly_executed(mut self) -> Self {
        if self.executed() != Executed::No {
            return self;
        }
        match &mut self {
            Self::TimedOut { executed, .. }
            | Self::Cancelled { executed }
            | Self::Unavailable { executed, .. } => *executed = Executed::Unknown,
            Self::Remote { error, .. } => {
                error.executed = Executed::Unknown;
                error.is_retryable = false;
            }
            Self::WithOutput { failure, output } => {
                let failure = std::mem::replace(&mut **failure, Self::failed(""));
                let (failure, output) = (failure.into_possibly_executed(), std::mem::take(output));
                return Self::WithOutput { failure: Box::new(failure), output };
            }
            // These codes state that the tool did not run.
            _ => {
                let message = format!("{self}; another delivery of the call may have run");
                return Self::OutcomeUnknown { message };
            }
        }
        self
    }

    /// Clones the failure for another caller of the same call. Causes become text.
    pub(crate) fn clone_for_caller(&self) -> Self {
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
            Self::WithOutput { failure, output } => {
                let failure = Box::new(failure.clone_for_caller());
                Self::WithOutput { failure, output: output.clone() }
            }
            Self::Remote { error, ran_on } => {
                Self::Remote { error: error.clone(), ran_on: ran_on.clone() }
            }
        }
    }

    /// Removes terminal sequences and hidden characters from the message: it comes from outside, and a
    /// model reads it.
    #[must_use]
    pub fn without_hidden_text(mut self) -> Self {
        if let Some(message) = self.message_mut() {
            *message = stripped(message).into_owned();
        }
        self
    }

    /// Returns the message for models and callers, if the failure has one; of a failure with output, the
    /// output.
    pub(crate) fn message_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::NotFound { name: message }
            | Self::InvalidArguments { message }
            | Self::Failed { message, .. }
            | Self::NotPermitted { reason: message }
            | Self::Overloaded { message }
            | Self::Unavailable { message, .. }
            | Self::OutcomeUnknown { message }
            | Self::WithOutput { output: message, .. } => Some(message),
            Self::Remote { error, .. } => Some(&mut error.message),
            Self::TimedOut { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// Converts the failure into an error for the wire.
    #[must_use]
    pub fn to_wire(&self, tool_call_id: ToolCallId, tool_name: &str) -> ToolError {
        let (code, executed, is_retryable) = self.classify();
        let message = shorten(&self.to_string());
        let tool_name = tool_name.to_owned();
        ToolError { tool_call_id, tool_name, code, message, is_retryable, executed, stages: None }
    }

    /// Returns the text that the model reads in place of a result.
    #[must_use]
    pub fn model_text(&self) -> String {
        format!("(tool failed: {})", shorten(&self.to_string()))
    }

    /// Returns the name of the process that failed, if known.
    #[must_use]
    pub fn ran_on(&self) -> Option<&str> {
        match self {
            Self::Remote { ran_on, .. } => ran_on.as_deref(),
            _ => None,
        }
    }

    /// Returns the durations of the call's stages, if a handler reported them.
    #[must_use]
    pub fn stages(&self) -> Option<CallStages> {
        match self {
            Self::Remote { error, .. } => error.stages,
            _ => None,
        }
    }

    /// Returns the failure with its causes, for the log.
    #[must_use]
    pub fn chain(&self) -> Chain<'_> {
        Chain(self)
    }
}

impl From<StoreError> for ToolFailure {
    /// The cause contains host names and paths, so it goes to the log and not to the model.
    fn from(error: StoreError) -> Self {
        warn!(%error, "store access of a tool failed");
        let (message, executed) = ("the store is unavailable; try again later", Executed::No);
        match error {
            StoreError::Unavailable { .. } | StoreError::Closed => {
                Self::Unavailable { message: message.to_owned(), executed }
            }
            StoreError::Unconfirmed { .. } => Self::OutcomeUnknown {
                message: "the store did not confirm the write; check the state before trying again"
                    .to_owned(),
            },
            StoreError::TooLarge { .. } | StoreError::TooManyEntries { .. } => {
                Self::invalid(error.to_string())
            }
            StoreError::Full { .. } => Self::failed("the store is full; notify an operator"),
            StoreError::Unusable { .. } => {
                Self::failed("the stored data cannot be read; notify an operator")
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

/// Maximum length of an error message on the wire, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

fn shorten(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((cut, _)) => format!("{}…", &message[..cut]),
        None => message.to_owned(),
    }
}

/// Displays an error and its causes on one line.
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
    fn timeout_is_retryable_only_without_double_execution() {
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
    fn possibly_executed_failure_never_denies_the_run() {
        let text = || "reason".to_owned();
        let timeout = ToolFailure::TimedOut {
            after: Duration::from_secs(1),
            executed: Executed::No,
            repeatable: false,
        };
        for failure in [
            timeout,
            ToolFailure::Cancelled { executed: Executed::No },
            ToolFailure::Unavailable { message: text(), executed: Executed::No },
            ToolFailure::NotPermitted { reason: text() },
            ToolFailure::Overloaded { message: text() },
            ToolFailure::invalid("reason"),
            ToolFailure::NotFound { name: text() },
        ] {
            let before = failure.to_string();
            let failure = failure.into_possibly_executed();
            assert_eq!((failure.executed(), failure.is_retryable()), (Executed::Unknown, false));
            assert!(failure.to_string().contains(&before), "{failure}");
        }
        let failure = ToolFailure::failed("reason").into_possibly_executed();
        assert_eq!(failure.executed(), Executed::Yes);
    }

    #[test]
    fn failure_with_output_keeps_classification() {
        let cancelled = ToolFailure::Cancelled { executed: Executed::No };
        let failure = ToolFailure::WithOutput {
            failure: Box::new(cancelled),
            output: "stdout:\n\u{1b}[31mone".to_owned(),
        };
        let failure = failure.without_hidden_text().clone_for_caller();
        assert_eq!(failure.model_text(), "(tool failed: cancelled\nstdout:\none)");
        assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Cancelled, Executed::No));
        let failure = failure.into_possibly_executed();
        assert_eq!(failure.executed(), Executed::Unknown);
        assert_eq!(failure.to_string(), "cancelled\nstdout:\none");
    }

    #[test]
    fn model_text_is_truncated() {
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
