//! Failures to read a PDF document.

use std::io;

/// A PDF document that cannot be read. Messages contain no text of the document.
#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    /// The document is larger than the limit.
    #[error("the PDF document exceeds {max_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        max_bytes: usize,
    },
    /// It is not a PDF document, or is damaged.
    #[error("the PDF document is damaged")]
    Damaged,
    /// It can only be opened with a password.
    #[error("the PDF document is protected by a password")]
    Protected,
    /// No page has text.
    #[error("the PDF document has no text; its pages may be scanned images")]
    NoText,
    /// The child exceeded its memory, its processor time or its stack before the first page.
    #[error("the PDF document needs too much memory or time to be read")]
    TooComplex,
    /// The deadline elapsed before the first page.
    #[error("the PDF document was not read in time")]
    TimedOut,
    /// The child cannot be started, or did not behave as expected.
    #[error("the reader of PDF documents failed")]
    Process(#[from] io::Error),
}
