//! Read access to the live handlers of a fleet.

use std::{collections::BTreeSet, time::Duration};

use rockbot_contracts::{HandlerPool, RoutingKey};
use tokio::{sync::watch, time::timeout};

use super::{handler_list::HandlerList, known_handler::KnownHandler};

/// Read access to the handlers of a [`CatalogDirectory`](super::CatalogDirectory). Keeps the last state
/// after the directory is dropped.
#[derive(Debug, Clone)]
pub struct HandlerView(pub(super) watch::Receiver<HandlerList>);

impl HandlerView {
    /// Returns the live handlers, ordered by pool and instance.
    #[must_use]
    pub fn handlers(&self) -> Vec<KnownHandler> {
        self.0.borrow().iter().cloned().collect()
    }

    /// Returns the pools with a live handler, in order.
    #[must_use]
    pub fn pools(&self) -> Vec<HandlerPool> {
        let pools: BTreeSet<_> = self.0.borrow().iter().map(|known| known.pool.clone()).collect();
        pools.into_iter().collect()
    }

    /// Returns the key of requests to the first pool with a live handler, and to the unnamed one without any.
    #[must_use]
    pub fn first_invoke_key(&self) -> RoutingKey {
        let handlers = self.0.borrow();
        let first = handlers.iter().next().map(|known| known.pool.clone());
        first.unwrap_or_default().invoke_key()
    }

    /// Waits until a handler has announced a tool, at most `wait`. Returns whether one has.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn wait_for_any(&self, wait: Duration) -> bool {
        let mut handlers = self.0.clone();
        let any =
            handlers.wait_for(|handlers| handlers.iter().any(|handler| !handler.tools.is_empty()));
        matches!(timeout(wait, any).await, Ok(Ok(_)))
    }

    /// Waits until at least `number` handlers have announced their tools.
    ///
    /// # Cancellation
    /// Safe. It may wait forever, so use it with a timeout.
    pub async fn wait_for_number(&self, number: usize) {
        let mut handlers = self.0.clone();
        // An error means that the directory was dropped, so that nothing changes any more.
        let _ = handlers.wait_for(|handlers| handlers.iter().count() >= number).await;
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
