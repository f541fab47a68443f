//! A store and the logs beside it.

use std::{fmt, sync::Arc};

use crate::{
    clock::Clock,
    log::{Log, MemoryLog},
    memory::MemoryStore,
    port::Store,
};

/// A store and logs on the same database.
#[derive(Clone)]
pub struct Stores {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The logs.
    pub log: Arc<dyn Log>,
}

impl Stores {
    /// Creates an empty in-memory store and in-memory logs.
    #[must_use]
    pub fn memory(clock: Clock) -> Self {
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self { store, log: Arc::new(MemoryLog::new(clock)) }
    }

    /// Closes both.
    pub async fn close(&self) {
        self.log.close().await;
        self.store.close().await;
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}
