//! Errors of chat requests.

use std::{error::Error, fmt, time::Duration};

/// Why a request got no complete answer.
///
/// Texts from servers in these messages are shortened, and free of control characters and the API key;
/// they are untrusted nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// 401 or 403: the key is missing, invalid, or lacks a permission.
    #[error("the model server refused the credentials (HTTP {status}): {message}; {hint}")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// The server's message.
        message: String,
        /// The variable or setting to change.
        hint: String,
    },
    /// 404: the server does not know the model, or the base URL is not that of an API.
    #[error(
        "model {model:?} not found at {endpoint} (HTTP 404): {message}; check the model's \
         name, and that base_url ends before /chat/completions (mostly in /v1)"
    )]
    ModelNotFound {
        /// The requested model.
        model: String,
        /// The base URL.
        endpoint: String,
        /// The server's message.
        message: String,
    },
    /// 429: too many requests, also after all configured attempts.
    #[error("the model server's rate limit is exceeded: {message}; {}", RetryAdvice(*retry_after))]
    RateLimited {
        /// The server's message.
        message: String,
        /// The delay that the server requested; it may be longer than a client would wait.
        retry_after: Option<Duration>,
    },
    /// The conversation exceeds the model's context window.
    #[error(
        "the conversation is too long for the model: {message}; shorten it or start a new session"
    )]
    ContextOverflow {
        /// The server's message.
        message: String,
    },
    /// Any other rejection, or a failure of the server.
    #[error("the model server {}: {message}", StatusText(*status))]
    Rejected {
        /// The HTTP status, or the code of an error inside the stream; absent when it had none.
        status: Option<u16>,
        /// The server's message.
        message: String,
    },
    /// The connection failed.
    #[error(
        "cannot connect to the model server at {endpoint}; check that it is running and that \
         base_url is right"
    )]
    Unreachable {
        /// The base URL.
        endpoint: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A timeout elapsed.
    #[error("the model server {phase} within {} s", after.as_secs_f32())]
    TimedOut {
        /// The phase that timed out.
        phase: TimeoutPhase,
        /// The timeout.
        after: Duration,
    },
    /// The answer was cut off; the received part is incomplete.
    #[error("the connection to the model server broke before the answer was complete; try again")]
    Interrupted {
        /// The cause; absent when the server just closed the stream.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The response does not follow the protocol.
    #[error("cannot read the model server's response: {message}")]
    Malformed {
        /// The violation.
        message: String,
    },
    /// The answer exceeds a limit.
    #[error("the model's answer is too large: more than {limit} {what}")]
    TooLarge {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The script has no turn for this conversation, or the turn cannot be played.
    #[error("script {script}, turn {turn}: {problem}")]
    Script {
        /// The script's name or file.
        script: String,
        /// The turn, from 1.
        turn: usize,
        /// The problem and the required change.
        problem: String,
    },
}

impl ChatError {
    /// Returns the kind of the error, for metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unauthorized { .. } => "unauthorized",
            Self::ModelNotFound { .. } => "model_not_found",
            Self::RateLimited { .. } => "rate_limited",
            Self::ContextOverflow { .. } => "context_overflow",
            Self::Rejected { .. } => "rejected",
            Self::Unreachable { .. } => "unreachable",
            Self::TimedOut { .. } => "timed_out",
            Self::Interrupted { .. } => "interrupted",
            Self::Malformed { .. } => "malformed",
            Self::TooLarge { .. } => "too_large",
            Self::Script { .. } => "script",
        }
    }
}

/// Phases of a request that can time out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// A connection.
    Connect,
    /// The next byte of the answer, or its first.
    Idle,
}

impl fmt::Display for TimeoutPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "accepted no connection",
            Self::Idle => "sent nothing",
        })
    }
}

impl ChatError {
    /// Returns whether a retry of the same request may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::TimedOut { phase, .. } => *phase == TimeoutPhase::Connect,
            Self::Rejected { status, .. } => matches!(status, Some(500 | 502 | 503 | 504)),
            Self::Unauthorized { .. }
            | Self::ModelNotFound { .. }
            | Self::ContextOverflow { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::Script { .. } => false,
        }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::Malformed { message: message.into() }
    }
}

struct RetryAdvice(Option<Duration>);

impl fmt::Display for RetryAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(wait) => write!(f, "try again in {} s", wait.as_secs()),
            None => f.write_str("try again later"),
        }
    }
}

struct StatusText(Option<u16>);

impl fmt::Display for StatusText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status @ 500..) => write!(f, "failed (HTTP {status})"),
            Some(status) => write!(f, "rejected the request (HTTP {status})"),
            None => f.write_str("failed while sending its answer"),
        }
    }
}
