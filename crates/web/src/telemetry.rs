//! Metrics of pages.

use std::time::Instant;

use metrics::{counter, histogram};

/// How reading a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// The dial policy or a redirect forbids it.
    Refused,
    Robots,
    TooLarge,
    Unreachable,
    Timeout,
    /// The content has no text that can be read.
    Unsupported,
    /// The site replied with an error.
    HttpError,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Robots => "robots",
            Self::TooLarge => "too_large",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unsupported => "unsupported",
            Self::HttpError => "http_error",
        }
    }
}

/// Records a page that was requested at `started`.
pub(crate) fn record_page(outcome: Outcome, started: Instant) {
    counter!("rockbot_web_pages_total", "outcome" => outcome.as_str()).increment(1);
    histogram!("rockbot_web_page_seconds").record(started.elapsed());
}
