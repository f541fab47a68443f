//! Announcements of a bridge's MCP servers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{
    Bus, ConsumeError, Publication, SUBSCRIBE_TIMEOUT, Settlement, Subscription, subscribe,
};
use rockbot_contracts::{
    ContentTrust, Envelope, InstanceId, Message, QueueSpec,
    json::Limits,
    mcp::{McpMetadataRefreshRequest, McpServerState, McpServerSummary, McpServersIndexed},
    topology::{stable_hash, tool_meta_mcp, tool_meta_mcp_refresh},
};
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{McpGateway, McpIndex, McpServerReport};
use crate::catalog::HEARTBEAT;

/// Time in which changes and refresh requests are collected into one announcement.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Maximum number of servers that peers request individually before an announcement. Above it, all servers
/// are announced.
const MAX_REQUESTED_SERVERS: usize = 64;

/// Maximum number of bytes of tool names and prompts in an announcement. Above it, the announcement
/// has neither.
const MAX_NAME_BYTES: usize = 1024 * 1024;

const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Announces the servers of a gateway and their states: all of them at the start and on request, the
/// difference on every change, a heartbeat every 10 s, and an empty index at the end.
#[derive(Debug)]
pub struct IndexAnnouncer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl IndexAnnouncer {
    /// Starts to announce the index of `gateway` for the process `instance` of the service `bridge`.
    ///
    /// # Errors
    /// When the queue for refresh requests can't be consumed.
    pub async fn start(
        bus: Arc<dyn Bus>,
        gateway: &dyn McpGateway,
        bridge: &str,
        instance: InstanceId,
    ) -> Result<Self, ConsumeError> {
        let queue = QueueSpec::exclusive(&tool_meta_mcp_refresh(), &instance);
        let subscription = Subscription::new(queue, 16);
        let mut refreshes = subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        let (mut index, mut states) = (gateway.index(), gateway.states());
        let mut changes = gateway.resource_changes();
        let mut has_changes = true;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let source = format!("{bridge}/{instance}");
        let announced = Announced::latest(&mut index, &mut states);
        let mut publisher = IndexPublisher { bus, source, instance, announced };
        let task = tokio::spawn(async move {
            publisher.announce_all().await;
            let mut heartbeat = tokio::time::interval(HEARTBEAT);
            heartbeat.reset();
            let mut pending = PendingAnnouncement::default();
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    () = pending.due() => {
                        let now = Announced::latest(&mut index, &mut states);
                        publisher.announce_pending(&mut pending, now).await;
                    }
                    _ = heartbeat.tick() => publisher.announce_heartbeat().await,
                    changed = changes.recv(), if has_changes => match changed {
                        Ok(changed) => publisher.announce(&changed).await,
                        Err(RecvError::Lagged(missed)) => debug!(missed, "changed resources not announced"),
                        Err(RecvError::Closed) => has_changes = false,
                    },
                    Ok(()) = index.changed() => pending.schedule(),
                    Ok(()) = states.changed() => pending.schedule(),
                    Some(refresh) = refreshes.next() => {
                        let request = refresh.envelope().decode(Limits::default());
                        pending.add_request(request.unwrap_or_default());
                        if let Err(error) = refresh.settle(Settlement::Ack).await {
                            debug!(%error, "refresh request not acknowledged; it may be redelivered");
                        }
                    }
                    else => break,
                }
            }
            publisher.announce_removal().await;
        });
        Ok(Self { stop, task })
    }

    /// Announces that this process has no servers any more, so that agents need not wait for its entry
    /// to expire. Waits at most 1 s, since there may be no broker.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(STOP_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for IndexAnnouncer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next announcement, and its time.
#[derive(Debug, Default)]
struct PendingAnnouncement {
    at: Option<Instant>,
    /// Requested servers, in lower case.
    servers: BTreeSet<String>,
    all: bool,
}

impl PendingAnnouncement {
    fn schedule(&mut self) {
        self.at.get_or_insert_with(|| Instant::now() + DEBOUNCE);
    }

    fn add_request(&mut self, request: McpMetadataRefreshRequest) {
        match request.server_name {
            Some(server) if self.servers.len() < MAX_REQUESTED_SERVERS => {
                self.servers.insert(server.to_lowercase());
            }
            _ => self.all = true,
        }
        self.schedule();
    }

    /// Waits until the announcement is due; forever while none is scheduled.
    async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// The content of the last announcement.
#[derive(Debug, Clone, Default)]
struct Announced {
    index: McpIndex,
    states: Vec<McpServerState>,
}

impl Announced {
    fn latest(
        index: &mut watch::Receiver<McpIndex>,
        states: &mut watch::Receiver<Vec<McpServerReport>>,
    ) -> Self {
        let states = states.borrow_and_update().iter().map(|report| report.state.clone()).collect();
        Self { index: index.borrow_and_update().clone(), states }
    }

    fn fingerprint(&self) -> String {
        let index = self.index.fingerprint();
        if self.states.is_empty() {
            return index;
        }
        let states = serde_json::to_string(&self.states).unwrap_or_default();
        format!("{:016x}", stable_hash(format!("{index}{states}").as_bytes()))
    }
}

struct IndexPublisher {
    bus: Arc<dyn Bus>,
    source: String,
    instance: InstanceId,
    announced: Announced,
}

impl IndexPublisher {
    async fn announce_pending(&mut self, pending: &mut PendingAnnouncement, now: Announced) {
        let PendingAnnouncement { servers, all, .. } = std::mem::take(pending);
        if all {
            self.announced = now;
            self.announce_all().await;
        } else {
            self.announce_changes(servers, now).await;
        }
    }

    async fn announce_heartbeat(&mut self) {
        let unchanged = self.announced.clone();
        self.announce_changes(BTreeSet::new(), unchanged).await;
    }

    async fn announce_all(&self) {
        self.publish(McpServersIndexed {
            instance: self.instance.clone(),
            servers: self.announced.index.servers().cloned().collect(),
            removed: Vec::new(),
            states: Some(self.announced.states.clone()),
            is_complete: true,
            since: None,
            fingerprint: self.announced.fingerprint(),
        })
        .await;
    }

    /// Announces the changed and the requested servers. An announcement without changes is a heartbeat.
    async fn announce_changes(&mut self, requested: BTreeSet<String>, now: Announced) {
        let announced = &self.announced;
        let is_included = |server: &&McpServerSummary| {
            announced.index.get(&server.name) != Some(*server)
                || requested.contains(&server.name.to_lowercase())
        };
        let is_removed = |server: &&McpServerSummary| now.index.get(&server.name).is_none();
        let removed = announced.index.servers().filter(is_removed);
        let delta = McpServersIndexed {
            instance: self.instance.clone(),
            servers: now.index.servers().filter(is_included).cloned().collect(),
            removed: removed.map(|server| server.name.clone()).collect(),
            states: (announced.states != now.states).then(|| now.states.clone()),
            is_complete: false,
            since: Some(announced.fingerprint()),
            fingerprint: now.fingerprint(),
        };
        self.announced = now;
        self.publish(delta).await;
    }

    async fn announce_removal(&mut self) {
        self.announced = Announced::default();
        self.announce_all().await;
    }

    async fn publish(&self, mut announcement: McpServersIndexed) {
        if announcement.servers.iter().map(name_bytes).sum::<usize>() > MAX_NAME_BYTES {
            for server in &mut announcement.servers {
                server.tool_names.clear();
                let prompts = u32::try_from(server.prompts.len()).unwrap_or(u32::MAX);
                server.prompts_left_out = server.prompts_left_out.saturating_add(prompts);
                server.prompts.clear();
            }
        }
        self.announce(&announcement).await;
    }

    async fn announce<M: Message>(&self, announcement: &M) {
        let envelope = Envelope::from_payload(announcement)
            .with_source(self.source.as_str())
            .with_trust(ContentTrust::ToolOutput);
        let publication = Publication::announcement(tool_meta_mcp(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "announcement not published; receivers detect it with the next heartbeat");
        }
    }
}

/// Returns the size of the tool names and prompts of a server.
fn name_bytes(server: &McpServerSummary) -> usize {
    let prompts = server.prompts.iter().map(|prompt| {
        let arguments = prompt.arguments.iter();
        let arguments = arguments.map(|argument| argument.name.len() + argument.description.len());
        prompt.name.len() + prompt.description.len() + arguments.sum::<usize>()
    });
    server.tool_names.iter().map(String::len).chain(prompts).sum()
}
