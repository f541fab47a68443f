//! Macros that print lines to outputs that may be full or closed.

/// Prints a line to standard output. An [`io::Error`](std::io::Error) becomes the command's
/// [`Failure`](crate::failure::Failure).
macro_rules! outln {
($($arguments:tt)*) => {{
    use std::io::Write;
    writeln!(anstream::stdout(), $($arguments)*)
    }};
}

/// Prints a line to standard error; errors are ignored, because it may be closed.
macro_rules! note {
    ($($arguments:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), $($arguments)*);
    }};
}

pub(crate) use {note, outln};
