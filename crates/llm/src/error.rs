//! Why there is no answer, or only half of one.

use std::{error::Error, fmt, time::Duration};

/// Why a model gave no complete answer.
///
/// Texts of servers in these messages are shortened and free of control characters and of the API
/// key, yet they are still words from outside.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// 401 or 403: the key is missing, wrong, or not allowed to do this.
    #[error("the model server refused the credentials (HTTP {status}): {message}; {hint}")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// The server's words.
        message: String,
        /// Which variable or setting to change.
        hint: String,
    },
    /// 404: the server doesn't know the model, or the base URL is not that of an API.
    #[error(
        "the server at {endpoint} has no model {model:?} (HTTP 404): {message}; check the model's \
         name, and that base_url ends before /chat/completions (mostly in /v1)"
    )]
    ModelNotFound {
        /// The model that was asked for.
        model: String,
        /// The base URL.
        endpoint: String,
        /// The server's words.
        message: String,
    },
    /// 429: too many requests, also after the configured attempts.
    #[error("the model server limits requests: {message}; {}", TryAgain(*retry_after))]
    RateLimited {
        /// The server's words.
        message: String,
        /// How long the server asked to wait; it may be longer than a client would.
        retry_after: Option<Duration>,
    },
    /// The conversation is longer than the model can read.
    #[error(
        "the conversation is too long for the model: {message}; shorten it or start a new session"
    )]
    ContextOverflow {
        /// The server's words.
        message: String,
    },
    /// Any other refusal, or a failure of the server.
    #[error("the model server {}: {message}", Refused(*status))]
    Rejected {
        /// The HTTP status, or the code of an error inside the stream; absent when it had none.
        status: Option<u16>,
        /// The server's words.
        message: String,
    },
    /// No connection.
    #[error("cannot connect to the model server at {endpoint}: is it running, is base_url right?")]
    Unreachable {
        /// The base URL.
        endpoint: String,
        /// What the network said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Silence for too long.
    #[error("the model server {phase} within {} s", after.as_secs_f32())]
    TimedOut {
        /// What did not happen.
        phase: TimeoutPhase,
        /// How long it was awaited.
        after: Duration,
    },
    /// The answer was cut: what arrived must not be taken for the whole.
    #[error("the connection to the model server broke before the answer was complete; try again")]
    Interrupted {
        /// What the network said; absent when the server just closed the stream.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// An answer that doesn't follow the protocol.
    #[error("the model server's answer can't be read: {message}")]
    Malformed {
        /// What is wrong with it.
        message: String,
    },
    /// An answer beyond a limit.
    #[error("the model's answer is too large: more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// A script has no turn for this conversation, or a turn that can't be played.
    #[error("script {script}, turn {turn}: {problem}")]
    Script {
        /// The script's name or file.
        script: String,
        /// The turn, from 1.
        turn: usize,
        /// What is wrong and what to change.
        problem: String,
    },
}

impl ChatError {
    /// What went wrong, in a word for counts.
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

/// What was awaited in vain.
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
    /// Whether the same request may succeed a little later.
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

struct TryAgain(Option<Duration>);

impl fmt::Display for TryAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(wait) => write!(f, "try again in {} s", wait.as_secs()),
            None => f.write_str("try again later"),
        }
    }
}

struct Refused(Option<u16>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status @ 500..) => write!(f, "failed (HTTP {status})"),
            Some(status) => write!(f, "rejected the request (HTTP {status})"),
            None => f.write_str("failed while it answered"),
        }
    }
}
