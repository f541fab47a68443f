//! Exit codes, numbered as in `sysexits.h`.

use std::io;

/// Success.
pub const OK: u8 = 0;
/// The request was carried out and its result is an error.
pub const ANSWERED_WITH_ERROR: u8 = 1;
/// The command line or the configuration is invalid.
pub const USAGE: u8 = 64;
/// No service is available for the request, or the broker is unreachable.
pub const UNAVAILABLE: u8 = 69;
/// A bug, or the system refused a thread or a socket.
pub const SOFTWARE: u8 = 70;
/// The output cannot be written.
pub const IO: u8 = 74;
/// Timed out or overloaded; a retry may succeed.
pub const TEMPORARY: u8 = 75;

/// Returns the exit code for a failed write to the output. A closed pipe is not a failure: the reader
/// needs no more output.
#[must_use]
pub fn unwritten(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OK,
        _ => IO,
    }
}
