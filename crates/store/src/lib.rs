//! Shared state with a time to live, behind one port.
//!
//! - [`Store`]: the port: conditional writes, reads, lists and expiry. [`MemoryStore`] implements it in
//!   one process; the crate `rockbot-store-sql` has SQLite and PostgreSQL stores. All pass one
//!   conformance suite.
//! - [`StoreUrl`]: the address of a store.
//! - [`Key`] and [`Prefix`]: names of entries.
//! - [`Version`]: a counter per store that only grows, usable as a fencing token.
//! - [`Lease`]: a time-limited exclusive lock.
//! - [`DocumentStore`]: JSON documents of one type.
//! - [`Log`]: a second port: append-only logs with a fence. [`MemoryLog`] implements it in one process.
//! - [`Stores`]: a store and the logs beside it.
//! - [`Sweeper`]: removes expired entries in the background.
//! - [`Clock`]: the time that entries expire by.

pub mod clock;
pub mod document;
pub mod key;
pub mod lease;
pub mod log;
pub mod memory;
pub mod port;
mod postgres_address;
mod reachable;
mod section;
mod stores;
pub mod sweeper;
pub mod url;

pub use clock::{Clock, ManualClock, Timestamp};
pub use document::{Document, DocumentError, DocumentStore, PutOutcome, UnreadableDocument};
pub use key::{InvalidKey, Key, MAX_KEY_BYTES, Prefix};
pub use lease::{Lease, LeaseError, LeaseRenewal};
pub use log::{
    Appended, Log, LogEntry, LogId, LogName, LogPosition, LogState, MAX_APPEND_BYTES,
    MAX_APPEND_ENTRIES, MAX_LOG_ENTRY_BYTES, MemoryLog,
};
pub use memory::{MemoryLimits, MemoryStore};
pub use port::{
    Entry, Expected, Extension, MAX_EXTENSIONS, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, MAX_VALUE_BYTES,
    Store, StoreError, Version, Write, Written,
};
pub use reachable::reachable;
pub use section::{StoreSection, state_folder};
pub use stores::Stores;
pub use sweeper::Sweeper;
pub use url::{InvalidStoreUrl, StoreUrl};
