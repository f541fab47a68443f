//! Scope and retention of a journal of calls.

use std::time::Duration;

use rockbot_store::{StoreSection, StoreUrl};

/// Retention of finished calls in the in-memory store, short because memory is limited and the entries
/// end with the process anyway.
const MEMORY_RETENTION: Duration = Duration::from_secs(600);

/// Scope and retention of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// Set when all handlers of the queue use this store. Then a call without an entry has not started in
    /// any handler, or finished longer ago than the retention. If not set, the journal of another handler
    /// may have the entry of a redelivered call.
    pub shared: bool,
    /// Retention of finished calls. Default 24 hours. The entry of a started call is kept for as long as
    /// a call may run.
    pub retention: Duration,
}

impl JournalOptions {
    /// Returns the options that a `[store]` section sets, with defaults for the kind of `store`.
    #[must_use]
    pub fn from_section(section: &StoreSection, store: &StoreUrl) -> Self {
        let default = match store {
            StoreUrl::Memory => MEMORY_RETENTION,
            _ => Self::default().retention,
        };
        Self {
            shared: section.shared.unwrap_or(matches!(store, StoreUrl::Postgres(_))),
            retention: section.keep.unwrap_or(default),
        }
    }
}

impl Default for JournalOptions {
    /// Not shared, with a retention of 24 hours.
    fn default() -> Self {
        Self { shared: false, retention: Duration::from_secs(24 * 3600) }
    }
}
