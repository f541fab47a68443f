//! Ends of requests in words for a model.

use http::StatusCode;

use super::verdict::RequestEnd;

/// Describes the end of a request for a model.
pub(super) fn describe(end: RequestEnd) -> String {
    match end {
        RequestEnd::NotSent => "the API cannot be reached".to_owned(),
        RequestEnd::Broken => "the connection broke before the response was complete".to_owned(),
        RequestEnd::Silent => "the API did not respond in time".to_owned(),
        RequestEnd::Status(status, _) => match StatusCode::from_u16(status) {
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
