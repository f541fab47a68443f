//! Progress messages on standard error.

use std::fmt::Display;
use std::io::Write;

/// Prints a progress line, such as `[broker] ready`.
pub(crate) fn progress(part: &str, text: impl Display) {
    line(format_args!("[{part}] {text}"));
}

/// Prints the heading of a step.
pub(crate) fn heading(text: impl Display) {
    line(format_args!("\n=== {text}"));
}

/// Prints the error of a failed task with its causes.
pub(crate) fn failure(error: &anyhow::Error) {
    line(format_args!("\ncargo xtask failed: {error:#}"));
}

/// Prints the result of a task on standard output.
pub(crate) fn result(text: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(text.as_bytes())
}

/// Prints a line.
pub(crate) fn line(text: std::fmt::Arguments<'_>) {
    // A closed terminal must not stop a task.
    let _ = writeln!(std::io::stderr(), "{text}");
}
