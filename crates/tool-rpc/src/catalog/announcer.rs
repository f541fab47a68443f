//! Announcements of a handler's tools.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{
    Bus, ConsumeError, Publication, SUBSCRIBE_TIMEOUT, Settlement, Subscription, subscribe,
};
use rockbot_contracts::{
    ContentTrust, Envelope, HandlerLoad, HandlerPool, InstanceId, ProviderInstructions, QueueSpec,
    ScriptIsolation, ToolCatalog, ToolGuide, ToolRegistration,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use rockbot_tools::registry::ToolRegistry;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::HEARTBEAT;

/// Time in which changes and refresh requests are collected into one announcement.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// A handler process, as it announces itself.
pub struct AnnouncedHandler {
    /// Name of the service.
    pub service: String,
    /// Process.
    pub instance: InstanceId,
    /// Pool whose requests it serves.
    pub pool: HandlerPool,
    /// Tools that it runs.
    pub registry: Arc<ToolRegistry>,
    /// Returns its load. Called for each announcement; must not block.
    pub load: Box<dyn Fn() -> HandlerLoad + Send + Sync>,
    /// Returns the instructions on its tools. Called for each announcement; must not block.
    pub instructions: Box<dyn Fn() -> Vec<ProviderInstructions> + Send + Sync>,
    /// Guides on its tools.
    pub guides: Vec<ToolGuide>,
    /// Isolation of the scripts that it runs, if it runs some.
    pub script_isolation: Option<ScriptIsolation>,
}

/// Announces the tools of a registry: at the start, on every change, on request, every 10 s, and as
/// removed at the end.
#[derive(Debug)]
pub struct CatalogAnnouncer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl CatalogAnnouncer {
    /// Starts to announce a handler.
    ///
    /// # Errors
    /// When the queue for refresh requests can't be consumed.
    pub async fn start(
        bus: Arc<dyn Bus>,
        announced: AnnouncedHandler,
    ) -> Result<Self, ConsumeError> {
        let queue = QueueSpec::exclusive(&tool_catalog_refresh(), &announced.instance);
        let subscription = Subscription::new(queue, 16);
        let mut refreshes = subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        let mut changes = announced.registry.subscribe();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let mut publisher =
            CatalogPublisher { bus, handler: announced, announced: BTreeSet::new() };
        let task = tokio::spawn(async move {
            let mut heartbeat = tokio::time::interval(HEARTBEAT);
            let mut due = None;
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    () = until(due) => {}
                    _ = heartbeat.tick() => {}
                    Ok(()) = changes.changed() => {
                        due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                        continue;
                    }
                    Some(refresh) = refreshes.next() => {
                        due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                        if let Err(error) = refresh.settle(Settlement::Ack).await {
                            debug!(%error, "refresh request not acknowledged; it may be redelivered");
                        }
                        continue;
                    }
                    else => break,
                }
                due = None;
                publisher.announce().await;
            }
            publisher.announce_removal().await;
        });
        Ok(Self { stop, task })
    }

    /// Announces that this process runs no tools any more, so that agents need not wait for its entry to
    /// expire. Waits at most 1 s, since there may be no broker.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(STOP_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for CatalogAnnouncer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until a time; forever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Version of all crates of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const STOP_TIMEOUT: Duration = Duration::from_secs(1);

struct CatalogPublisher {
    bus: Arc<dyn Bus>,
    handler: AnnouncedHandler,
    /// Names of the tools in the last announcement.
    announced: BTreeSet<String>,
}

impl CatalogPublisher {
    async fn announce(&mut self) {
        let tools = self.handler.registry.list();
        let names: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let removed = self.announced.difference(&names).cloned().collect();
        self.announced = names;
        let (load, instructions) = ((self.handler.load)(), (self.handler.instructions)());
        let catalog = self.catalog(tools, removed);
        let AnnouncedHandler { guides, script_isolation, .. } = &self.handler;
        self.publish(ToolCatalog {
            load: Some(load),
            instructions,
            guides: guides.clone(),
            script_isolation: script_isolation.clone(),
            ..catalog
        })
        .await;
    }

    async fn announce_removal(&mut self) {
        let removed = std::mem::take(&mut self.announced).into_iter().collect();
        self.publish(self.catalog(Vec::new(), removed)).await;
    }

    fn catalog(&self, tools: Vec<ToolRegistration>, removed: Vec<String>) -> ToolCatalog {
        let AnnouncedHandler { service, instance, pool, .. } = &self.handler;
        let is_named = *pool != HandlerPool::Unnamed;
        ToolCatalog {
            handler: service.clone(),
            instance: instance.clone(),
            fingerprint: ToolCatalog::fingerprint_of(&tools),
            tools,
            removed,
            version: Some(VERSION.to_owned()),
            load: None,
            invoke_key: is_named.then(|| pool.invoke_key()),
            instructions: Vec::new(),
            guides: Vec::new(),
            script_isolation: None,
        }
    }

    async fn publish(&self, catalog: ToolCatalog) {
        let envelope = Envelope::from_payload(&catalog)
            .with_source(self.handler.service.as_str())
            .with_trust(ContentTrust::System);
        let publication = Publication::announcement(tool_catalog_announce(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "announcement not published; the next heartbeat repeats it");
        }
    }
}
