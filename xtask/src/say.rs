//! Progress of the chores, on standard error.

use std::fmt::Display;
use std::io::Write;

/// One line of progress of a part of a chore: `[broker] ready`.
pub(crate) fn progress(part: &str, text: impl Display) {
    line(format_args!("[{part}] {text}"));
}

/// The heading of a step.
pub(crate) fn heading(text: impl Display) {
    line(format_args!("\n=== {text}"));
}

/// Why a chore failed, with every cause.
pub(crate) fn failure(error: &anyhow::Error) {
    line(format_args!("\ncargo xtask failed: {error:#}"));
}

/// One line as it is.
pub(crate) fn line(text: std::fmt::Arguments<'_>) {
    // A closed terminal is no reason to stop a chore half way.
    let _ = writeln!(std::io::stderr(), "{text}");
}
