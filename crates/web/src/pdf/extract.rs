//! Extraction of text, in the child process.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, Error, PlainTextOutput, output_doc_page};

use super::limits::{MAX_PAGES, MAX_TEXT_BYTES};

/// The reason why a document is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExtractError {
    Damaged,
    Protected,
    /// The text cannot be written.
    Output,
}

impl From<io::Error> for ExtractError {
    fn from(_: io::Error) -> Self {
        Self::Output
    }
}

/// Writes the text of a document, each page after a line `--- page N ---`. Ends with a note when pages
/// were left out.
pub(super) fn extract(document: &[u8], output: &mut impl Write) -> Result<(), ExtractError> {
    let document = open(document)?;
    let pages: Vec<u32> =
        unwinding(|| document.get_pages().into_keys().collect()).ok_or(ExtractError::Damaged)?;
    if pages.is_empty() {
        return Err(ExtractError::Damaged);
    }
    let mut rest = MAX_TEXT_BYTES;
    for (index, page) in pages.iter().enumerate() {
        if index == MAX_PAGES || rest == 0 {
            let left = pages.len() - index;
            writeln!(output, "--- {left} more pages are not read ---")?;
            break;
        }
        let text = page_text(&document, *page, rest);
        rest -= text.bytes.len();
        writeln!(output, "--- page {page} ---")?;
        writeln!(output, "{}\n", String::from_utf8_lossy(&text.bytes).trim())?;
        if text.is_cut {
            writeln!(output, "--- the text of page {page} is cut here ---")?;
        }
        // Kept when a later page exceeds a limit of the process.
        output.flush()?;
    }
    Ok(())
}

fn open(document: &[u8]) -> Result<Document, ExtractError> {
    let opened = unwinding(|| {
        let mut document = Document::load_mem(document)?;
        if document.is_encrypted() {
            // Documents that are only protected against changes have an empty password.
            document.decrypt("")?;
        }
        Ok(document)
    });
    match opened {
        Some(Ok(document)) => Ok(document),
        Some(Err(Error::InvalidPassword | Error::Decryption(_))) => Err(ExtractError::Protected),
        Some(Err(_)) | None => Err(ExtractError::Damaged),
    }
}

/// Returns the text of a page, or a note if the page is damaged.
fn page_text(document: &Document, page: u32, max_bytes: usize) -> BoundedText {
    let mut text = BoundedText { bytes: Vec::new(), max_bytes, is_cut: false };
    let extracted = unwinding(|| {
        let mut output = PlainTextOutput::new(&mut text as &mut dyn Write);
        output_doc_page(document, &mut output, page).is_ok()
    });
    if extracted != Some(true) && !text.is_cut {
        let note = "(the rest of this page cannot be read)".as_bytes();
        text.bytes.extend(note.iter().take(max_bytes - text.bytes.len()));
    }
    text
}

/// Calls `read`, and returns `None` if it panics: the parser panics on many damaged documents.
fn unwinding<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
}

/// The first `max_bytes` of a text.
struct BoundedText {
    bytes: Vec<u8>,
    max_bytes: usize,
    is_cut: bool,
}

impl Write for BoundedText {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if text.len() > self.max_bytes - self.bytes.len() {
            self.is_cut = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
