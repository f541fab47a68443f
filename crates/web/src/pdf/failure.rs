//! Failures to read a PDF document.

use std::io;

use crate::pdf_reader::PdfError;

/// A PDF document that was not read. Messages contain no text of the document.
#[derive(Debug, thiserror::Error)]
pub enum PdfFailure {
    /// The document is larger than the limit.
    #[error("it exceeds {max_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        max_bytes: usize,
    },
    /// It is not a PDF document, or is damaged.
    #[error("it is damaged")]
    Damaged,
    /// It can only be opened with a password.
    #[error("it is protected by a password")]
    Protected,
    /// No page has text.
    #[error("it has no text; its pages may be scanned images")]
    NoText,
    /// The child exceeded its memory, its processor time or its stack before the first page was read.
    #[error("it needs too much memory or time")]
    TooComplex,
    /// The deadline elapsed before the first page was read.
    #[error("it was not read in time")]
    TimedOut,
    /// The child cannot be started, or did not behave as expected.
    #[error("the reader of PDF documents failed")]
    Process(#[from] io::Error),
}

impl From<PdfFailure> for PdfError {
    fn from(failure: PdfFailure) -> Self {
        match failure {
            PdfFailure::TimedOut => Self::TimedOut,
            PdfFailure::Process(error) => Self::Unavailable(error.into()),
            PdfFailure::TooLarge { .. }
            | PdfFailure::Damaged
            | PdfFailure::Protected
            | PdfFailure::NoText
            | PdfFailure::TooComplex => Self::Unreadable { reason: failure.to_string() },
        }
    }
}
