//! Pages that were not read, and the messages about them for a model.

use std::time::Duration;

use rockbot_egress::EgressError;
use rockbot_tools::{Executed, ToolFailure, ToolResult};

use crate::{fetch::FetchError, pdf_reader::PdfError, reader::ReadError, telemetry::Outcome};

/// A page that was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the site replied with status {status}")]
    Status {
        status: u16,
        /// Seconds of `Retry-After`.
        retry_after: Option<u64>,
    },
    /// Content without text.
    #[error("the content is {what}")]
    Binary { what: &'static str, media_type: String, bytes: usize },
    #[error("no reader of PDF documents is configured")]
    NoPdfReader { bytes: usize },
    #[error(transparent)]
    Pdf(#[from] PdfError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the page shows no text")]
    Empty { notes: Vec<String> },
}

impl PageError {
    /// Returns the outcome for metrics.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Fetch(FetchError::Egress(error)) => egress_outcome(error.of_hop()),
            Self::Fetch(FetchError::Excluded | FetchError::RobotsUnknown) => Outcome::Robots,
            Self::Fetch(FetchError::Busy) | Self::Read(ReadError::Busy | ReadError::TimedOut) => {
                Outcome::Timeout
            }
            Self::Pdf(PdfError::TimedOut) => Outcome::Timeout,
            Self::Fetch(FetchError::Routed(_)) | Self::Status { .. } => Outcome::HttpError,
            Self::Binary { .. }
            | Self::NoPdfReader { .. }
            | Self::Pdf(_)
            | Self::Read(_)
            | Self::Empty { .. } => Outcome::Unsupported,
        }
    }

    /// Returns what the caller gets. A page that is not there is a result that reports an error; a page that
    /// may be there later is a failure that may be retried, because reading has no effect.
    pub(super) fn into_result(self, timeout: Duration) -> Result<ToolResult, ToolFailure> {
        match self {
            Self::Fetch(error) => fetch_failure(error, timeout),
            Self::Status { status, retry_after } => status_result(status, retry_after),
            Self::Binary { what, media_type, bytes } => {
                let size = size(bytes);
                let kind = if media_type.is_empty() { "no type".to_owned() } else { media_type };
                let kind = rockbot_contracts::outside_text::plain(&kind, 80);
                Ok(ToolResult::error(format!(
                    "This is {what} ({kind}, {size}); it has no text to read."
                )))
            }
            Self::NoPdfReader { bytes } => Ok(ToolResult::error(format!(
                "This is a PDF document ({}); PDFs are not read here. Look for the same text as a web page.",
                size(bytes)
            ))),
            Self::Pdf(PdfError::Unreadable { reason }) => {
                let reason = rockbot_contracts::outside_text::plain(&reason, 200);
                Ok(ToolResult::error(format!("This PDF document cannot be read: {reason}.")))
            }
            Self::Pdf(PdfError::TimedOut) => {
                Ok(ToolResult::error("This PDF document takes too long to read."))
            }
            Self::Pdf(error @ PdfError::Unavailable(_)) => {
                let message = "PDF documents cannot be read now; notify an operator";
                Err(ToolFailure::failed_with_source(message, error))
            }
            Self::Read(ReadError::Busy) => {
                overloaded("too many pages are being read; try again in a minute")
            }
            Self::Read(ReadError::TimedOut) => Ok(ToolResult::error(
                "This page takes too long to read; its markup is too complex.",
            )),
            Self::Read(error @ (ReadError::Crashed | ReadError::Thread(_))) => {
                Err(ToolFailure::failed_with_source(
                    "the page cannot be parsed; use another page",
                    error,
                ))
            }
            Self::Empty { notes } => Ok(ToolResult::error(match notes.first() {
                Some(note) => format!("No text could be read from this page: {note}."),
                None => "This page shows no text.".to_owned(),
            })),
        }
    }
}

fn fetch_failure(error: FetchError, timeout: Duration) -> Result<ToolResult, ToolFailure> {
    match error {
        FetchError::Egress(error) => egress_failure(error, timeout),
        FetchError::Excluded => Ok(ToolResult::error(
            "The site asks robots not to read this page (robots.txt). Use another source.",
        )),
        FetchError::RobotsUnknown => unavailable(
            "the robots.txt of the site cannot be read, so its pages are not; try again later",
        ),
        FetchError::Busy => overloaded("too many pages are being read; try again in a minute"),
        FetchError::Routed(failure) => Err(failure),
    }
}

fn egress_outcome(error: &EgressError) -> Outcome {
    match error {
        EgressError::Refused(_) | EgressError::Redirect(_) | EgressError::Invalid(_) => {
            Outcome::Refused
        }
        EgressError::TooLarge { .. } => Outcome::TooLarge,
        EgressError::TimedOut => Outcome::Timeout,
        EgressError::Resolve(_)
        | EgressError::Connect(_)
        | EgressError::Tls(_)
        | EgressError::NotHttp
        | EgressError::Connection(_)
        | EgressError::AfterRedirect(_) => Outcome::Unreachable,
    }
}

/// Addresses and hosts stay out of the messages: they go to the log with the cause.
fn egress_failure(error: EgressError, timeout: Duration) -> Result<ToolResult, ToolFailure> {
    let message = match error.of_hop() {
        EgressError::Refused(_) => {
            return Err(ToolFailure::NotPermitted {
                reason: "this address may not be read: it is private, or its port is not allowed; use a \
                         public page"
                    .to_owned(),
            });
        }
        EgressError::Redirect(reason) => {
            return Ok(ToolResult::error(format!(
                "The page redirects, which is not followed: {reason}."
            )));
        }
        EgressError::TooLarge { max_bytes } => {
            return Ok(ToolResult::error(format!(
                "This page is too large: it has more than {}.",
                size(*max_bytes)
            )));
        }
        EgressError::TimedOut => {
            let (executed, repeatable) = (Executed::Yes, true);
            return Err(ToolFailure::TimedOut { after: timeout, executed, repeatable });
        }
        EgressError::Resolve(_) => "the host of this URL does not exist; check its spelling",
        EgressError::Tls(_) => "the site has no trusted certificate, so it is not read",
        EgressError::Connect(_) => "the site cannot be reached; try again later",
        EgressError::NotHttp => "the site does not reply in HTTP; check the URL",
        EgressError::Invalid(_) => "the URL cannot be requested; check it",
        EgressError::Connection(_) | EgressError::AfterRedirect(_) => {
            "the connection to the site failed; try again later"
        }
    };
    match error.of_hop() {
        EgressError::Connect(_) | EgressError::Connection(_) | EgressError::AfterRedirect(_) => {
            unavailable(message)
        }
        _ => Err(ToolFailure::failed_with_source(message, error)),
    }
}

fn status_result(status: u16, retry_after: Option<u64>) -> Result<ToolResult, ToolFailure> {
    let reason = match status {
        404 | 410 => "there is no such page",
        401 | 407 => "the page needs a login",
        402 => "the page must be paid for",
        403 => "the site refuses us",
        451 => "the page is not available for legal reasons",
        429 => {
            return match retry_after {
                Some(seconds) => overloaded(&format!(
                    "the site accepts no further requests for {seconds} s (429)"
                )),
                None => overloaded(
                    "the site accepts no further requests for now (429); try again later",
                ),
            };
        }
        500..=599 => {
            let wait = retry_after.map(|seconds| format!("; it asks to wait {seconds} s"));
            let wait = wait.unwrap_or_else(|| "; try again later".to_owned());
            return unavailable(&format!("the site has an error ({status}){wait}"));
        }
        300..=399 => "the site redirects to nowhere",
        _ => "the site refuses the request",
    };
    Ok(ToolResult::error(format!("The page was not read: {reason} ({status}).")))
}

fn overloaded(message: &str) -> Result<ToolResult, ToolFailure> {
    Err(ToolFailure::Overloaded { message: message.to_owned() })
}

/// A read that may be repeated.
fn unavailable(message: &str) -> Result<ToolResult, ToolFailure> {
    Err(ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No })
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_outcomes() {
        for (status, retry_after, expected) in [
            (404, None, "The page was not read: there is no such page (404)."),
            (401, None, "The page was not read: the page needs a login (401)."),
            (403, None, "The page was not read: the site refuses us (403)."),
            (418, None, "The page was not read: the site refuses the request (418)."),
            (429, Some(7), "overloaded: the site accepts no further requests for 7 s (429)"),
            (503, Some(9), "unavailable: the site has an error (503); it asks to wait 9 s"),
            (500, None, "unavailable: the site has an error (500); try again later"),
        ] {
            let text = match status_result(status, retry_after) {
                Ok(result) => {
                    assert!(result.is_error);
                    result.to_text().into_owned()
                }
                Err(failure) => {
                    assert!(failure.is_retryable());
                    failure.to_string()
                }
            };
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([size(999), size(120_500), size(5_242_880)], ["999 bytes", "120 kB", "5.2 MB"]);
    }
}
