//! Questions to the API server: each is bounded, and its refusals are told apart.

use std::{future::Future, time::Duration};

use kube::Error;
use tokio::time::timeout;

/// How long one answer may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// A question without a usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the API server did not answer within {ANSWER:?}")]
    Silent,
    #[error(transparent)]
    Refused(#[from] Error),
}

/// What a refusal means for whoever asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// There is one of that name.
    Exists,
    /// Another change came first, such as to a quota, or it is another one of that name.
    Conflict,
    /// There is none of that name.
    Missing,
    /// The namespace has no room for one more.
    QuotaFull,
    /// Asking again may help; nobody knows whether this one was heard.
    Unheard,
    /// Asking again may help; this one was not carried out.
    NotNow,
    /// Asking again does not help.
    Refused,
}

/// Asks with a bound on the time.
pub(crate) async fn ask<T>(
    question: impl Future<Output = Result<T, Error>>,
) -> Result<T, ApiError> {
    match timeout(ANSWER, question).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Silent),
    }
}

impl ApiError {
    pub(crate) fn meaning(&self) -> Meaning {
        let Self::Refused(Error::Api(status)) = self else { return Meaning::Unheard };
        match status.code {
            409 if status.is_already_exists() => Meaning::Exists,
            409 => Meaning::Conflict,
            429 => Meaning::NotNow,
            404 => Meaning::Missing,
            403 if status.message.contains("exceeded quota") => Meaning::QuotaFull,
            400..500 => Meaning::Refused,
            _ => Meaning::Unheard,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_means_what_the_cluster_meant() {
        let refusal = |code, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            ApiError::from(Error::Api(status.boxed())).meaning()
        };
        assert_eq!(refusal(409, "AlreadyExists", "pods \"x\" already exists"), Meaning::Exists);
        assert_eq!(refusal(409, "Conflict", "on resourcequotas \"q\""), Meaning::Conflict);
        assert_eq!(refusal(403, "Forbidden", "exceeded quota: q"), Meaning::QuotaFull);
        assert_eq!(refusal(403, "Forbidden", "cannot create pods"), Meaning::Refused);
        assert_eq!(refusal(404, "NotFound", "namespaces \"x\" not found"), Meaning::Missing);
        assert_eq!(refusal(422, "Invalid", "spec.cpu"), Meaning::Refused);
        assert_eq!(refusal(500, "InternalError", "etcd"), Meaning::Unheard);
        assert_eq!(ApiError::Silent.meaning(), Meaning::Unheard);
    }
}
