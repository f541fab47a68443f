//! Writes the text of the PDF document on standard input to standard output, within the limits of
//! [`rockbot_web::pdf`].

use std::process::ExitCode;

fn main() -> ExitCode {
    rockbot_web::pdf::read_pdf_main()
}
