//! Read access to the live handlers of a fleet.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{HandlerPool, RoutingKey};
use tokio::{sync::watch, time::timeout};

use super::{known_handler::KnownHandler, snapshot::CatalogSnapshot};

/// Read access to the handlers of a [`CatalogDirectory`](super::CatalogDirectory). Keeps the last state
/// after the directory is dropped.
#[derive(Debug, Clone)]
pub struct HandlerView(pub(super) watch::Receiver<Arc<CatalogSnapshot>>);

impl HandlerView {
    /// Returns the handlers and the owners of their tools at this time.
    #[must_use]
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.0.borrow().clone()
    }

    /// Returns the live handlers, ordered by pool and instance.
    #[must_use]
    pub fn handlers(&self) -> Vec<KnownHandler> {
        self.snapshot().handlers().cloned().collect()
    }

    /// Returns the pools with a live handler, in order.
    #[must_use]
    pub fn pools(&self) -> Vec<HandlerPool> {
        self.snapshot().pools()
    }

    /// Returns the keys of requests to the pools with a live handler, and that of the unnamed one without
    /// any.
    #[must_use]
    pub fn invoke_keys(&self) -> Vec<RoutingKey> {
        let mut pools = self.pools();
        if pools.is_empty() {
            pools.push(HandlerPool::Unnamed);
        }
        pools.iter().map(HandlerPool::invoke_key).collect()
    }

    /// Waits until a handler has announced a tool, at most `wait`. Returns whether one has.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn wait_for_any(&self, wait: Duration) -> bool {
        let mut handlers = self.0.clone();
        let any = handlers
            .wait_for(|catalog| catalog.handlers().any(|handler| !handler.tools.is_empty()));
        matches!(timeout(wait, any).await, Ok(Ok(_)))
    }

    /// Waits until at least `number` handlers have announced their tools.
    ///
    /// # Cancellation
    /// Safe. It may wait forever, so use it with a timeout.
    pub async fn wait_for_number(&self, number: usize) {
        let mut handlers = self.0.clone();
        // An error means that the directory was dropped, so that nothing changes any more.
        let _ = handlers.wait_for(|catalog| catalog.handlers().count() >= number).await;
    }

    /// Waits until the handlers and their tools have not changed for `quiet`.
    ///
    /// # Cancellation
    /// Safe. It may wait forever, so use it with a timeout.
    pub async fn settle(&self, quiet: Duration) {
        let mut handlers = self.0.clone();
        handlers.mark_unchanged();
        while matches!(timeout(quiet, handlers.changed()).await, Ok(Ok(()))) {}
    }
}
