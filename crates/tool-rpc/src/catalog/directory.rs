//! Directory of the tools that the fleet of handlers runs.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use rockbot_bus::{Bus, ConsumeError, Publication, Requester, Subscription};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec, ToolCatalog, ToolCatalogRefresh, ToolRegistration,
    envelope::unix_ms,
    json::Limits,
    outside_text::plain,
    topology::{tool_catalog_announce, tool_catalog_refresh, tool_invoke},
};
use rockbot_tools::registry::{RegisterError, ToolRegistry};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::{debug, info, warn};

use super::{EXPIRE_AFTER, known_handler::KnownHandler, mismatch::MismatchReport};
use crate::remote::RemoteTool;

/// Maximum number of handler processes in the directory.
const MAX_HANDLERS: usize = 1024;

/// Longest name in a log message, in characters.
const MAX_LOGGED_NAME_CHARS: usize = 100;

/// Maximum number of tools of one handler.
const MAX_TOOLS: usize = 2048;

type Handlers = BTreeMap<InstanceId, KnownHandler>;

/// Registers a remote tool for every tool that at least one live handler announces.
#[derive(Debug)]
pub struct CatalogDirectory {
    handlers: watch::Receiver<Handlers>,
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
        let mut announcements = bus.consume(Subscription::on_receipt(queue, 64)).await?;
        request_announcements(bus.as_ref()).await;
        let (sender, handlers) = watch::channel(Handlers::new());
        let task = tokio::spawn(async move {
            let (registered, rejected) = (BTreeMap::new(), BTreeMap::new());
            let mut sync = RegistrySync { registry, requester, registered, rejected };
            let mut mismatches = MismatchReport::default();
            let mut expiry = tokio::time::interval(EXPIRE_AFTER / 7);
            loop {
                let mut clock_ahead = 0;
                let catalog = tokio::select! {
                    announcement = announcements.next() => {
                        let Some(announcement) = announcement else { break };
                        let envelope = announcement.envelope();
                        clock_ahead = clock_ahead_seconds(envelope);
                        match envelope.decode::<ToolCatalog>(Limits::default()) {
                            Ok(catalog) => Some((catalog, envelope.user_id.clone())),
                            Err(error) => {
                                warn!(%error, "unreadable announcement");
                                continue;
                            }
                        }
                    }
                    _ = expiry.tick() => None,
                };
                sender.send_if_modified(|handlers| {
                    let changed = match catalog {
                        Some((catalog, user)) => {
                            let instance = catalog.instance.clone();
                            let changed = apply(handlers, catalog, user.as_deref());
                            if let Some(known) = handlers.get_mut(&instance) {
                                known.clock_ahead_seconds = clock_ahead;
                            }
                            changed
                        }
                        None => remove_expired(handlers),
                    };
                    if changed {
                        // Before the notification: an observer of a handler can call its tools.
                        sync.update(handlers);
                        mismatches.update(handlers.values());
                    }
                    changed
                });
            }
        });
        Ok(Self { handlers, task })
    }

    /// Returns the live handlers.
    #[must_use]
    pub fn handlers(&self) -> Vec<KnownHandler> {
        self.handlers.borrow().values().cloned().collect()
    }

    /// Waits until a handler has announced a tool, at most `wait`. Returns whether one has.
    pub async fn wait_for_any(&self, wait: std::time::Duration) -> bool {
        let mut handlers = self.handlers.clone();
        let any = handlers
            .wait_for(|handlers| handlers.values().any(|handler| !handler.tools.is_empty()));
        matches!(timeout(wait, any).await, Ok(Ok(_)))
    }
}

impl Drop for CatalogDirectory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn request_announcements(bus: &dyn Bus) {
    let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
    let publication = Publication::announcement(tool_catalog_refresh(), envelope);
    if let Err(error) = bus.publish(publication).await {
        debug!(%error, "refresh request not published; heartbeats follow anyway");
    }
}

/// Returns the seconds by which the sender's clock is ahead of this one. An announcement is not stored, so
/// it was sent just now.
fn clock_ahead_seconds(announcement: &Envelope) -> i64 {
    let now = unix_ms(SystemTime::now()) / 1000;
    let signed = |seconds| i64::try_from(seconds).unwrap_or(i64::MAX);
    signed(announcement.timestamp).saturating_sub(signed(now))
}

/// Applies an announcement. Returns whether the handlers or their tools changed.
fn apply(handlers: &mut Handlers, catalog: ToolCatalog, user: Option<&str>) -> bool {
    let ToolCatalog { handler, instance, mut tools, fingerprint, version, load, .. } = catalog;
    tools.truncate(MAX_TOOLS);
    let last_seen = Instant::now();
    if tools.is_empty() {
        let removed = handlers.remove(&instance).is_some();
        if removed {
            info!(%handler, %instance, "handler stopped");
        }
        return removed;
    }
    let known = handlers.get_mut(&instance);
    if let Some(known) = known.filter(|known| known.fingerprint == fingerprint) {
        known.last_seen = last_seen;
        known.load = load;
        return false;
    }
    if handlers.len() >= MAX_HANDLERS && !handlers.contains_key(&instance) {
        warn!(%handler, limit = MAX_HANDLERS, "handler ignored: too many handlers");
        return false;
    }
    info!(%handler, %instance, tools = tools.len(), "handler announced its tools");
    let known = KnownHandler {
        handler,
        instance: instance.clone(),
        tools,
        version,
        load,
        user: user.map(str::to_owned),
        clock_ahead_seconds: 0,
        fingerprint,
        last_seen,
    };
    handlers.insert(instance, known);
    true
}

fn remove_expired(handlers: &mut Handlers) -> bool {
    let before = handlers.len();
    handlers.retain(|instance, known| {
        let is_alive = known.last_seen.elapsed() < EXPIRE_AFTER;
        if !is_alive {
            warn!(handler = %known.handler, %instance, "handler removed: no heartbeat");
        }
        is_alive
    });
    handlers.len() != before
}

/// Updates a registry with the announced tools. Changes only tools that it registered.
struct RegistrySync {
    registry: Arc<ToolRegistry>,
    requester: Arc<Requester>,
    registered: BTreeMap<String, ToolRegistration>,
    /// Definitions that the registry has rejected, so that each is compiled and reported once.
    rejected: BTreeMap<String, ToolRegistration>,
}

impl RegistrySync {
    fn update(&mut self, handlers: &Handlers) {
        let mut wanted: BTreeMap<&str, &ToolRegistration> = BTreeMap::new();
        for tool in handlers.values().flat_map(|handler| &handler.tools) {
            // If handlers announce different definitions of a tool, the lowest instance id wins.
            wanted.entry(&tool.name).or_insert(tool);
        }
        self.registered.retain(|name, registered| {
            let is_current = wanted.get(name.as_str()).is_some_and(|tool| *tool == registered);
            if !is_current {
                self.registry.unregister(name);
            }
            is_current
        });
        self.rejected.retain(|name, rejected| wanted.get(name.as_str()) == Some(&&*rejected));
        for (name, tool) in wanted {
            if self.registered.contains_key(name) || self.rejected.contains_key(name) {
                continue;
            }
            let remote = RemoteTool::new(tool.clone(), self.requester.clone(), tool_invoke());
            match self.registry.register(Arc::new(remote)) {
                Ok(()) => {
                    self.registered.insert(name.to_owned(), tool.clone());
                }
                // The tool may have become available in another way, and may be removed again.
                Err(error @ RegisterError::Duplicate { .. }) => {
                    debug!(%error, "announced tool not registered");
                }
                Err(error) => {
                    let name = plain(name, MAX_LOGGED_NAME_CHARS);
                    warn!(tool = %name, %error, "announced tool rejected");
                    self.rejected.insert(tool.name.clone(), tool.clone());
                }
            }
        }
    }
}
