//! Exit codes, in the numbers of `sysexits.h`.

/// All went well.
pub const OK: u8 = 0;
/// The work was done and its answer is an error.
pub const ANSWERED_WITH_ERROR: u8 = 1;
/// The command line or the configuration can't be used.
pub const USAGE: u8 = 64;
/// Nobody serves what was asked for, or there is no broker.
pub const UNAVAILABLE: u8 = 69;
/// A bug.
pub const SOFTWARE: u8 = 70;
/// Timed out or overloaded; the same may work later.
pub const TEMPORARY: u8 = 75;
