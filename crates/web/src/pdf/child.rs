//! The child process.

use std::io::{self, Read};
use std::process::ExitCode;

use super::extract::{ExtractError, extract};
use super::limits::{
    EXIT_DAMAGED, EXIT_PROTECTED, EXIT_SYSTEM, MAX_DOCUMENT_BYTES, limit_this_process,
};

/// Reads a PDF document from standard input and writes its text to standard output.
///
/// To be called first in a main function, before any thread is started, when the first argument is
/// [`READ_PDF_ARGUMENT`](super::READ_PDF_ARGUMENT). It limits the process for the rest of its life: 512
/// MiB of address space, 10 s of processor time, no new files, sockets or processes.
///
/// Exit codes: 0; 65 for a damaged document; 77 for one that needs a password; 71 when the limits cannot
/// be set or a standard stream fails. A document that exceeds a limit ends the process with a signal.
#[must_use]
pub fn read_pdf_main() -> ExitCode {
    if limit_this_process().is_err() {
        return ExitCode::from(EXIT_SYSTEM);
    }
    let mut document = Vec::new();
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    if io::stdin().lock().take(limit).read_to_end(&mut document).is_err() {
        return ExitCode::from(EXIT_SYSTEM);
    }
    if document.len() > MAX_DOCUMENT_BYTES {
        return ExitCode::from(EXIT_DAMAGED);
    }
    match extract(&document, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ExtractError::Damaged) => ExitCode::from(EXIT_DAMAGED),
        Err(ExtractError::Protected) => ExitCode::from(EXIT_PROTECTED),
        Err(ExtractError::Output) => ExitCode::from(EXIT_SYSTEM),
    }
}
