//! Changes of the tools of a fleet.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// Time from a change to its notification. A handler that starts announces its tools one after the other.
const DEBOUNCE: Duration = Duration::from_millis(250);

/// A receiver of changes of the tools of handlers, agents and MCP servers.
#[derive(Debug)]
pub(crate) struct CatalogChanges([watch::Receiver<u64>; 2]);

impl CatalogChanges {
    pub(crate) fn new(registries: [watch::Receiver<u64>; 2]) -> Self {
        Self(registries)
    }

    /// Waits for a change, and for the changes that follow immediately. Returns `false` when nothing can change
    /// any more.
    pub(crate) async fn changed(&mut self) -> bool {
        let [handlers, others] = &mut self.0;
        let changed = tokio::select! {
            changed = handlers.changed() => changed,
            changed = others.changed() => changed,
        };
        sleep(DEBOUNCE).await;
        self.0.iter_mut().for_each(watch::Receiver::mark_unchanged);
        changed.is_ok()
    }
}
