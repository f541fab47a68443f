//! Exit codes, in the numbers of `sysexits.h`.

use std::io;

/// All went well.
pub const OK: u8 = 0;
/// The work was done and its answer is an error.
pub const ANSWERED_WITH_ERROR: u8 = 1;
/// The command line or the configuration can't be used.
pub const USAGE: u8 = 64;
/// Nobody serves what was asked for, or there is no broker.
pub const UNAVAILABLE: u8 = 69;
/// A bug, or the system has no room for another thread or socket.
pub const SOFTWARE: u8 = 70;
/// The output can't be written.
pub const IO: u8 = 74;
/// Timed out or overloaded; the same may work later.
pub const TEMPORARY: u8 = 75;

/// The code for output that can't be written: a reader who has seen enough and left is no failure.
#[must_use]
pub fn unwritten(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OK,
        _ => IO,
    }
}
