//! Metrics of requests.

use std::sync::Arc;

use metrics::counter;

/// Outcomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    ClientError,
    ServerError,
    Limited,
    Unreachable,
    Timeout,
    Unknown,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::ServerError => "server_error",
            Self::Limited => "limited",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }
}

/// Counts a request of an entry of the configuration.
pub(crate) fn count_request(tool_set: &Arc<str>, outcome: Outcome) {
    counter!("rockbot_rest_requests_total", "tool_set" => tool_set.to_string(), "outcome" => outcome.as_str())
        .increment(1);
}

/// Counts a retry.
pub(crate) fn count_retry(tool_set: &Arc<str>) {
    counter!("rockbot_rest_retries_total", "tool_set" => tool_set.to_string()).increment(1);
}
