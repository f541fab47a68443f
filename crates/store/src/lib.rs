//! Shared state with a time to live, behind one port.
//!
//! - [`Store`]: what every store can do: compare and write, list, forget. [`MemoryStore`] does it
//!   in one process; the crate `rockbot-store-sql` has a store in a file and one in a database. All
//!   pass one conformance suite.
//! - [`StoreUrl`]: which store.
//! - [`Key`] and [`Prefix`]: where something is kept.
//! - [`Version`]: one counter for each store that only grows, so that it fences.
//! - [`Lease`]: one holder at a time, for a while.
//! - [`Shelf`]: JSON documents of one kind.
//! - [`Sweeper`]: removes what has expired.
//! - [`Clock`]: what "expired" is measured by.

pub mod clock;
pub mod key;
pub mod lease;
pub mod memory;
pub mod port;
mod postgres_address;
mod reachable;
mod section;
pub mod shelf;
pub mod sweeper;
pub mod url;

pub use clock::{Clock, ManualClock, Timestamp};
pub use key::{InvalidKey, Key, MAX_KEY_BYTES, Prefix};
pub use lease::{Lease, LeaseError};
pub use memory::{MemoryLimits, MemoryStore};
pub use port::{
    Entry, Expected, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, MAX_VALUE_BYTES, Store, StoreError, Version,
    Write, Written,
};
pub use reachable::reachable;
pub use section::{StoreSection, state_folder};
pub use shelf::{Document, Placed, Shelf, ShelfError};
pub use sweeper::Sweeper;
pub use url::{InvalidStoreUrl, StoreUrl};
