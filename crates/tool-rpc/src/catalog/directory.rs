//! An agent learns which tools the fleet runs.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_bus::{Bus, ConsumeError, Publication, Requester, Subscription};
use rockbot_contracts::{
    Envelope, HandlerLoad, InstanceId, QueueSpec, ToolCatalog, ToolCatalogRefresh,
    ToolRegistration,
    json::Limits,
    topology::{tool_catalog_announce, tool_catalog_refresh, tool_invoke},
};
use rockbot_tools::registry::ToolRegistry;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::{debug, info, warn};

use super::FORGET_AFTER;
use crate::remote::RemoteTool;

/// Most handler processes that one agent keeps track of.
const MOST_HANDLERS: usize = 1024;

/// Most tools that one handler may announce.
const MOST_TOOLS: usize = 2048;

/// One handler process, as it announced itself.
#[derive(Debug, Clone)]
pub struct KnownHandler {
    /// Name of its service.
    pub handler: String,
    /// The process.
    pub instance: InstanceId,
    /// What it runs.
    pub tools: Vec<ToolRegistration>,
    /// Its version, where it says it.
    pub version: Option<String>,
    /// How busy it was when it last announced itself, where it says it.
    pub load: Option<HandlerLoad>,
    fingerprint: String,
    heard: Instant,
}

type Handlers = BTreeMap<InstanceId, KnownHandler>;

/// Keeps a registry filled with remote tools: what at least one living handler announces.
#[derive(Debug)]
pub struct CatalogDirectory {
    handlers: watch::Receiver<Handlers>,
    task: JoinHandle<()>,
}

impl CatalogDirectory {
    /// Listens for announcements, asks every handler for one, and keeps `registry` up to date.
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
        let mut announcements = bus.consume(Subscription::on_receipt(queue, 64)).await?;
        ask_for_announcements(bus.as_ref()).await;
        let (known, handlers) = watch::channel(Handlers::new());
        let task = tokio::spawn(async move {
            let mut keeper = Keeper { registry, requester, offered: BTreeMap::new() };
            let mut look = tokio::time::interval(FORGET_AFTER / 7);
            loop {
                let catalog = tokio::select! {
                    announcement = announcements.next() => {
                        let Some(announcement) = announcement else { break };
                        match announcement.envelope().decode::<ToolCatalog>(Limits::default()) {
                            Ok(catalog) => Some(catalog),
                            Err(error) => {
                                warn!(%error, "unreadable announcement");
                                continue;
                            }
                        }
                    }
                    _ = look.tick() => None,
                };
                known.send_if_modified(|handlers| {
                    let changed = match catalog {
                        Some(catalog) => hear(handlers, catalog),
                        None => forget_silent(handlers),
                    };
                    if changed {
                        // Offered before it is told: whoever hears of a handler can call its tools.
                        keeper.follow(handlers);
                    }
                    changed
                });
            }
        });
        Ok(Self { handlers, task })
    }

    /// The handlers that are believed to live.
    #[must_use]
    pub fn handlers(&self) -> Vec<KnownHandler> {
        self.handlers.borrow().values().cloned().collect()
    }

    /// Waits until some handler announced itself, at most `wait`. Whether one did.
    pub async fn wait_for_any(&self, wait: std::time::Duration) -> bool {
        let mut handlers = self.handlers.clone();
        let some = handlers.wait_for(|known| known.values().any(|one| !one.tools.is_empty()));
        matches!(timeout(wait, some).await, Ok(Ok(_)))
    }
}

impl Drop for CatalogDirectory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask_for_announcements(bus: &dyn Bus) {
    let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
    let publication = Publication::announcement(tool_catalog_refresh(), envelope);
    if let Err(error) = bus.publish(publication).await {
        debug!(%error, "could not ask for announcements; heartbeats will come");
    }
}

/// Takes an announcement in. Whether it changed who runs what.
fn hear(handlers: &mut Handlers, catalog: ToolCatalog) -> bool {
    let ToolCatalog { handler, instance, mut tools, fingerprint, version, load, .. } = catalog;
    tools.truncate(MOST_TOOLS);
    let heard = Instant::now();
    if tools.is_empty() {
        let gone = handlers.remove(&instance).is_some();
        if gone {
            info!(%handler, %instance, "a handler said goodbye");
        }
        return gone;
    }
    if let Some(same) = handlers.get_mut(&instance).filter(|one| one.fingerprint == fingerprint) {
        same.heard = heard;
        same.load = load;
        return false;
    }
    if handlers.len() >= MOST_HANDLERS && !handlers.contains_key(&instance) {
        warn!(%handler, "too many handlers; ignoring one");
        return false;
    }
    info!(%handler, %instance, tools = tools.len(), "heard of a handler");
    let one = KnownHandler {
        handler,
        instance: instance.clone(),
        tools,
        version,
        load,
        fingerprint,
        heard,
    };
    handlers.insert(instance, one);
    true
}

fn forget_silent(handlers: &mut Handlers) -> bool {
    let before = handlers.len();
    handlers.retain(|instance, one| {
        let lives = one.heard.elapsed() < FORGET_AFTER;
        if !lives {
            warn!(handler = %one.handler, %instance, "a handler fell silent; forgetting it");
        }
        lives
    });
    handlers.len() != before
}

/// Makes the registry hold what the handlers announce. It touches only tools that it registered.
struct Keeper {
    registry: Arc<ToolRegistry>,
    requester: Arc<Requester>,
    offered: BTreeMap<String, ToolRegistration>,
}

impl Keeper {
    fn follow(&mut self, handlers: &Handlers) {
        let mut wanted: BTreeMap<&str, &ToolRegistration> = BTreeMap::new();
        for tool in handlers.values().flat_map(|handler| &handler.tools) {
            // Two handlers that disagree about a tool: the first instance's word holds.
            wanted.entry(&tool.name).or_insert(tool);
        }
        self.offered.retain(|name, offered| {
            let same = wanted.get(name.as_str()).is_some_and(|tool| *tool == offered);
            if !same {
                self.registry.unregister(name);
            }
            same
        });
        for (name, tool) in wanted {
            if self.offered.contains_key(name) {
                continue;
            }
            let remote = RemoteTool::new(tool.clone(), self.requester.clone(), tool_invoke());
            match self.registry.register(Arc::new(remote)) {
                Ok(()) => {
                    self.offered.insert(name.to_owned(), tool.clone());
                }
                Err(error) => debug!(%error, "an announced tool is not offered"),
            }
        }
    }
}
