//! A bridge says which servers it serves.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Publication, Settlement, Subscription};
use rockbot_contracts::{
    ContentTrust, Envelope, InstanceId, QueueSpec,
    json::Limits,
    mcp::{McpMetadataRefreshRequest, McpServerSummary, McpServersIndexed},
    topology::{tool_meta_mcp, tool_meta_mcp_refresh},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{McpGateway, McpIndex};
use crate::catalog::HEARTBEAT;

/// Changes and requests that come so close together are answered together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Servers that were asked for one by one, before all are told instead.
const MOST_ASKED: usize = 64;

/// An announcement that would be larger goes out without the names of tools.
const MAX_BYTES: usize = 1024 * 1024;

const FAREWELL_WITHIN: Duration = Duration::from_secs(1);

/// Announces the servers of a gateway: all of them on start and when asked, what changed on every
/// change, a sign of life every ten seconds, and that there are none when stopped.
#[derive(Debug)]
pub struct IndexAnnouncer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl IndexAnnouncer {
    /// Starts to announce the index of `gateway` in the name of the bridge process `instance` of
    /// the service `bridge`.
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
        let mut refreshes = bus.consume(Subscription::new(queue, 16)).await?;
        let mut index = gateway.index();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let source = format!("{bridge}/{instance}");
        let told = index.borrow_and_update().clone();
        let mut voice = Voice { bus, source, instance, told };
        let task = tokio::spawn(async move {
            voice.say_all().await;
            let mut heartbeat = tokio::time::interval(HEARTBEAT);
            heartbeat.reset();
            let mut due = Due::default();
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    () = due.comes() => voice.say_due(&mut due, &index).await,
                    _ = heartbeat.tick() => voice.say(BTreeSet::new(), &McpIndex::clone(&voice.told)).await,
                    Ok(()) = index.changed() => due.soon(),
                    Some(refresh) = refreshes.next() => {
                        due.asked(refresh.envelope().decode(Limits::default()).unwrap_or_default());
                        if let Err(error) = refresh.settle(Settlement::Ack).await {
                            debug!(%error, "a refresh may come twice");
                        }
                    }
                    else => break,
                }
            }
            voice.farewell().await;
        });
        Ok(Self { stop, task })
    }

    /// Says that this process serves nothing any more, so that nobody has to find out.
    ///
    /// Waits at most a second: without a broker there is nobody to tell.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(FAREWELL_WITHIN, &mut self.task).await;
    }
}

impl Drop for IndexAnnouncer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is to be said, and when.
#[derive(Debug, Default)]
struct Due {
    at: Option<Instant>,
    /// Servers that somebody asked for, in lower case.
    servers: BTreeSet<String>,
    all: bool,
}

impl Due {
    fn soon(&mut self) {
        self.at.get_or_insert_with(|| Instant::now() + DEBOUNCE);
    }

    fn asked(&mut self, request: McpMetadataRefreshRequest) {
        match request.server_name {
            Some(server) if self.servers.len() < MOST_ASKED => {
                self.servers.insert(server.to_lowercase());
            }
            _ => self.all = true,
        }
        self.soon();
    }

    /// Returns when something is due; never while nothing is.
    async fn comes(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

struct Voice {
    bus: Arc<dyn Bus>,
    source: String,
    instance: InstanceId,
    /// What was said last.
    told: McpIndex,
}

impl Voice {
    async fn say_due(&mut self, due: &mut Due, index: &watch::Receiver<McpIndex>) {
        let Due { servers, all, .. } = std::mem::take(due);
        let now = index.borrow().clone();
        if all {
            self.told = now;
            self.say_all().await;
        } else {
            self.say(servers, &now).await;
        }
    }

    /// Says everything.
    async fn say_all(&self) {
        self.publish(McpServersIndexed {
            instance: self.instance.clone(),
            servers: self.told.servers().cloned().collect(),
            removed: Vec::new(),
            is_complete: true,
            since: None,
            fingerprint: self.told.fingerprint(),
        })
        .await;
    }

    /// Says what changed, and what was asked for. When that is nothing, it is a sign of life.
    async fn say(&mut self, asked: BTreeSet<String>, now: &McpIndex) {
        let is_news = |server: &&McpServerSummary| {
            self.told.get(&server.name) != Some(*server)
                || asked.contains(&server.name.to_lowercase())
        };
        let servers = now.servers().filter(is_news).cloned().collect();
        let gone = self.told.servers().filter(|server| now.get(&server.name).is_none());
        let delta = McpServersIndexed {
            instance: self.instance.clone(),
            servers,
            removed: gone.map(|server| server.name.clone()).collect(),
            is_complete: false,
            since: Some(self.told.fingerprint()),
            fingerprint: now.fingerprint(),
        };
        self.told = now.clone();
        self.publish(delta).await;
    }

    async fn farewell(&mut self) {
        self.told = McpIndex::default();
        self.say_all().await;
    }

    async fn publish(&self, mut said: McpServersIndexed) {
        let names = said.servers.iter().flat_map(|server| &server.tool_names);
        if names.map(String::len).sum::<usize>() > MAX_BYTES {
            said.servers.iter_mut().for_each(|server| server.tool_names.clear());
        }
        let envelope = Envelope::from_payload(&said)
            .with_source(self.source.as_str())
            .with_trust(ContentTrust::ToolOutput);
        let publication = Publication::announcement(tool_meta_mcp(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "an announcement was lost; the next heartbeat shows the gap");
        }
    }
}
