//! The port to a reader of PDF documents.

use std::error::Error;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

/// Reads the text of PDF documents. Documents are hostile: an implementation reads them in another process.
pub trait PdfReader: Send + Sync + 'static {
    /// Returns the text of a document as Markdown, by the deadline.
    ///
    /// # Errors
    /// See [`PdfError`].
    ///
    /// # Cancellation
    /// Dropping the future ends the process that reads the document.
    fn read<'a>(
        &'a self,
        bytes: Vec<u8>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<String, PdfError>>;
}

/// A PDF document that was not read.
#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    /// The document is damaged, encrypted, or exceeds a limit.
    #[error("the document cannot be read: {reason}")]
    Unreadable {
        /// Cause, for the model.
        reason: String,
    },
    /// The deadline or the limit of processor time passed.
    #[error("reading the document takes too long")]
    TimedOut,
    /// The reader cannot be started.
    #[error("the reader of PDF documents is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}
