//! A handler says what it runs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Publication, Settlement, Subscription};
use rockbot_contracts::{
    ContentTrust, Envelope, HandlerLoad, InstanceId, QueueSpec, ToolCatalog,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use rockbot_tools::registry::ToolRegistry;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::HEARTBEAT;

/// Announces a registry: on start, on every change, when asked, every ten seconds, and for the last
/// time when stopped.
#[derive(Debug)]
pub struct CatalogAnnouncer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl CatalogAnnouncer {
    /// Starts to announce what `registry` holds, and how busy the handler is: `load` is asked at
    /// each announcement, and must not block.
    ///
    /// # Errors
    /// When the queue for refresh requests can't be consumed.
    pub async fn start(
        bus: Arc<dyn Bus>,
        registry: Arc<ToolRegistry>,
        handler: &str,
        instance: InstanceId,
        load: impl Fn() -> HandlerLoad + Send + 'static,
    ) -> Result<Self, ConsumeError> {
        let queue = QueueSpec::exclusive(&tool_catalog_refresh(), &instance);
        let mut refreshes = bus.consume(Subscription::new(queue, 16)).await?;
        let mut changes = registry.subscribe();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let handler = handler.to_owned();
        let mut voice = Voice { bus, registry, handler, instance, told: BTreeSet::new() };
        let task = tokio::spawn(async move {
            let mut heartbeat = tokio::time::interval(HEARTBEAT);
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    _ = heartbeat.tick() => {}
                    Ok(()) = changes.changed() => {}
                    Some(refresh) = refreshes.next() => {
                        if let Err(error) = refresh.settle(Settlement::Ack).await {
                            debug!(%error, "a refresh may come twice");
                        }
                    }
                    else => break,
                }
                voice.announce(load()).await;
            }
            voice.farewell().await;
        });
        Ok(Self { stop, task })
    }

    /// Says that this process runs nothing any more, so that nobody has to find out.
    ///
    /// Waits at most a second: without a broker there is nobody to tell.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(FAREWELL_WITHIN, &mut self.task).await;
    }
}

impl Drop for CatalogAnnouncer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All crates of the house have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const FAREWELL_WITHIN: Duration = Duration::from_secs(1);

struct Voice {
    bus: Arc<dyn Bus>,
    registry: Arc<ToolRegistry>,
    handler: String,
    instance: InstanceId,
    told: BTreeSet<String>,
}

impl Voice {
    async fn announce(&mut self, load: HandlerLoad) {
        let tools = self.registry.list();
        let names: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let removed = self.told.difference(&names).cloned().collect();
        let fingerprint = ToolCatalog::fingerprint_of(&tools);
        self.told = names;
        self.say(ToolCatalog {
            handler: self.handler.clone(),
            instance: self.instance.clone(),
            tools,
            removed,
            fingerprint,
            version: Some(VERSION.to_owned()),
            load: Some(load),
        })
        .await;
    }

    async fn farewell(&mut self) {
        let removed = std::mem::take(&mut self.told).into_iter().collect();
        self.say(ToolCatalog {
            handler: self.handler.clone(),
            instance: self.instance.clone(),
            tools: Vec::new(),
            removed,
            fingerprint: ToolCatalog::fingerprint_of(&[]),
            version: Some(VERSION.to_owned()),
            load: None,
        })
        .await;
    }

    async fn say(&self, catalog: ToolCatalog) {
        let envelope = Envelope::from_payload(&catalog)
            .with_source(self.handler.as_str())
            .with_trust(ContentTrust::System);
        let publication = Publication::announcement(tool_catalog_announce(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "an announcement was lost; the next heartbeat repeats it");
        }
    }
}
