//! Limits of a servers file.

/// The largest servers file, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The maximum number of servers of a bridge.
pub(crate) const MAX_SERVERS: usize = 256;
