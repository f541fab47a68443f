//! Requests to the API server, with a time limit, and the classification of their failures.

use std::{future::Future, time::Duration};

use backon::ExponentialBuilder;
use kube::Error;
use tokio::time::timeout;

/// The time limit of one request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts, with jitter.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A request without a usable response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the API server did not respond within {REQUEST_TIMEOUT:?}")]
    Timeout,
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The meaning of a failure for the sender of the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// An object of that name exists.
    Exists,
    /// Another change came first, such as to a quota, or it is another object of that name.
    Conflict,
    /// No object has that name.
    NotFound,
    /// The quota of the namespace is exhausted.
    QuotaFull,
    /// A retry may help. Whether the request was carried out is unknown.
    Unknown,
    /// A retry may help. The request was not carried out.
    Throttled,
    /// A retry does not help.
    Rejected,
}

/// Sends a request with a time limit.
pub(crate) async fn request<T>(
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, ApiError> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(ApiError::Timeout),
    }
}

/// Returns the pauses between attempts of a request that is retried until a deadline.
pub(crate) fn retry_pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(MIN_PAUSE)
        .with_max_delay(MAX_PAUSE)
        .with_jitter()
        .without_max_times()
}

impl ApiError {
    pub(crate) fn kind(&self) -> FailureKind {
        let Self::Failed(Error::Api(status)) = self else { return FailureKind::Unknown };
        match status.code {
            409 if status.is_already_exists() => FailureKind::Exists,
            409 => FailureKind::Conflict,
            429 => FailureKind::Throttled,
            404 => FailureKind::NotFound,
            403 if status.message.contains("exceeded quota") => FailureKind::QuotaFull,
            400..500 => FailureKind::Rejected,
            _ => FailureKind::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn failures_are_classified_by_code_and_reason() {
        let kind = |code, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            ApiError::from(Error::Api(status.boxed())).kind()
        };
        assert_eq!(kind(409, "AlreadyExists", "pods \"x\" already exists"), FailureKind::Exists);
        assert_eq!(kind(409, "Conflict", "on resourcequotas \"q\""), FailureKind::Conflict);
        assert_eq!(kind(403, "Forbidden", "exceeded quota: q"), FailureKind::QuotaFull);
        assert_eq!(kind(403, "Forbidden", "cannot create pods"), FailureKind::Rejected);
        assert_eq!(kind(404, "NotFound", "namespaces \"x\" not found"), FailureKind::NotFound);
        assert_eq!(kind(422, "Invalid", "spec.cpu"), FailureKind::Rejected);
        assert_eq!(kind(500, "InternalError", "etcd"), FailureKind::Unknown);
        assert_eq!(ApiError::Timeout.kind(), FailureKind::Unknown);
    }
}
