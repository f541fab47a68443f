//! Append-only logs with a fence, behind one port.
//!
//! - [`Log`]: the port: fenced appends, reads, lists and truncation. [`MemoryLog`] implements it in one
//!   process, the SQL stores on their databases. All pass one conformance suite.
//! - [`LogName`]: the name of a log.

mod memory;
mod name;
mod port;

pub use memory::MemoryLog;
pub use name::LogName;
pub use port::{
    Appended, Log, LogEntry, LogId, LogPosition, LogState, MAX_APPEND_BYTES, MAX_APPEND_ENTRIES,
    MAX_LOG_ENTRY_BYTES, check_append,
};
