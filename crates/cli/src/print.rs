//! What is printed for a person or a program, on outputs that may be full or closed.

/// Prints a line to standard output. An [`io::Error`](std::io::Error) is the command's
/// [`Failure`](crate::ending::Failure).
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write;
        writeln!(anstream::stdout(), $($words)*)
    }};
}

/// Prints a line beside the output, to standard error. Whoever closed that does not want it.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), $($words)*);
    }};
}

pub(crate) use {note, say};
