//! Descriptions of failed requests, for a model.

use http::StatusCode;

use super::verdict::RequestFailure;

/// Describes a failed request for a model.
pub(super) fn describe(failure: RequestFailure) -> String {
    match failure {
        RequestFailure::NotSent => "the API cannot be reached".to_owned(),
        RequestFailure::Broken => {
            "the connection broke before the response was complete".to_owned()
        }
        RequestFailure::Silent => "the API did not respond in time".to_owned(),
        RequestFailure::Status(status, _) => match StatusCode::from_u16(status) {
            Ok(status) => format!("the API replied with {}", status_line(status)),
            Err(_) => format!("the API replied with {status}"),
        },
    }
}

/// Returns the code of a status with its name.
pub(super) fn status_line(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}
