//! Text of PDF documents, extracted in a child process.
//!
//! A crafted document can make every PDF parser recurse or allocate until the process aborts, which no
//! handler of panics can prevent. [`PdfProcess`] therefore runs the parser in a child: the program calls
//! itself with [`READ_PDF_ARGUMENT`], and its main function passes control to [`read_pdf_main`]. The child
//! limits its own memory, time and files before it reads a byte of the document.
//!
//! The child reads the document from standard input and writes the text page by page to standard output,
//! so that the pages before a failure are kept.

mod child;
mod extract;
mod failure;
mod limits;
mod process;

pub use child::read_pdf_main;
pub use failure::PdfFailure;
pub use process::PdfProcess;

/// The first argument of a program that is to run [`read_pdf_main`].
pub const READ_PDF_ARGUMENT: &str = "--read-pdf";
