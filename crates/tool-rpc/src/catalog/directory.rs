//! Directory of the tools that the fleet of handlers runs.

use std::sync::Arc;

use rockbot_bus::{
    Bus, ConsumeError, Publication, Requester, SUBSCRIBE_TIMEOUT, Subscription, subscribe,
};
use rockbot_contracts::{
    Envelope, QueueSpec, ToolCatalogRefresh,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use rockbot_tools::registry::ToolRegistry;
use tokio::{sync::watch, task::JoinHandle};
use tracing::debug;

use super::{
    EXPIRE_AFTER,
    conflict::ConflictReport,
    handler_view::HandlerView,
    known_handler::KnownHandler,
    mismatch::MismatchReport,
    observer::{Announcement, CatalogObserver},
    registry_sync::RegistrySync,
    snapshot::CatalogSnapshot,
};

/// Registers a remote tool for every tool that at least one live handler announces. Its calls go to the
/// handler's pool.
#[derive(Debug)]
pub struct CatalogDirectory {
    handlers: HandlerView,
    task: JoinHandle<()>,
}

impl CatalogDirectory {
    /// Starts to consume announcements and to update `registry`, and requests an announcement of every
    /// handler.
    ///
    /// # Errors
    /// When the queue for announcements can't be consumed.
    pub async fn start(
        requester: Arc<Requester>,
        registry: Arc<ToolRegistry>,
    ) -> Result<Self, ConsumeError> {
        let bus = requester.bus().clone();
        let instance = requester.address().instance();
        let queue = QueueSpec::exclusive(&tool_catalog_announce(), instance);
        let subscription = Subscription::on_receipt(queue, 64);
        let mut announcements = subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        request_announcements(bus.as_ref()).await;
        let (sender, handlers) = watch::channel(Arc::default());
        let task = tokio::spawn(async move {
            let mut catalog = Catalog::new(RegistrySync::new(registry, requester), sender);
            let mut expiry = tokio::time::interval(EXPIRE_AFTER / 7);
            loop {
                let announcement = tokio::select! {
                    announcement = announcements.next() => {
                        let Some(announcement) = announcement else { break };
                        match Announcement::read(announcement.envelope()) {
                            Some(announcement) => Some(announcement),
                            None => continue,
                        }
                    }
                    _ = expiry.tick() => None,
                };
                catalog.update(announcement);
            }
        });
        Ok(Self { handlers: HandlerView(handlers), task })
    }

    /// Returns read access to the handlers, for as long as it is needed.
    #[must_use]
    pub fn view(&self) -> HandlerView {
        self.handlers.clone()
    }

    /// Returns the live handlers, ordered by pool and instance.
    #[must_use]
    pub fn handlers(&self) -> Vec<KnownHandler> {
        self.handlers.handlers()
    }

    /// Waits until a handler has announced a tool, at most `wait`. Returns whether one has.
    pub async fn wait_for_any(&self, wait: std::time::Duration) -> bool {
        self.handlers.wait_for_any(wait).await
    }
}

impl Drop for CatalogDirectory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The list of handlers, and everything that follows from it. Readers get snapshots, so that they do not wait
/// while definitions are compiled.
struct Catalog {
    observer: CatalogObserver,
    registry: RegistrySync,
    mismatches: MismatchReport,
    conflicts: ConflictReport,
    snapshots: watch::Sender<Arc<CatalogSnapshot>>,
}

impl Catalog {
    fn new(registry: RegistrySync, snapshots: watch::Sender<Arc<CatalogSnapshot>>) -> Self {
        Self {
            observer: CatalogObserver::default(),
            registry,
            mismatches: MismatchReport::default(),
            conflicts: ConflictReport::default(),
            snapshots,
        }
    }

    /// Applies an announcement, or removes the handlers without heartbeats. Readers are notified only when
    /// handlers, tools or instructions changed.
    fn update(&mut self, announcement: Option<Announcement>) {
        let changed = self.observer.update(announcement);
        let snapshot = self.observer.current();
        if changed {
            // Before the notification: an observer of a handler can call its tools.
            self.registry.update(&snapshot);
            self.mismatches.update(snapshot.handlers());
            self.conflicts.update(snapshot.conflicts());
        }
        let snapshot = Arc::new(snapshot);
        self.snapshots.send_if_modified(|current| {
            *current = snapshot;
            changed
        });
    }
}

async fn request_announcements(bus: &dyn Bus) {
    let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
    let publication = Publication::announcement(tool_catalog_refresh(), envelope);
    if let Err(error) = bus.publish(publication).await {
        debug!(%error, "refresh request not published; heartbeats follow anyway");
    }
}

#[cfg(test)]
mod tests;
