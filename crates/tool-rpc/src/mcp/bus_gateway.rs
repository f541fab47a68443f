//! The MCP servers of the bridges on the bus.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, ConsumeError, Publication, Requester, Subscription};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec, ToolHints, ToolRegistration, ToolSource,
    json::Limits,
    mcp::{
        McpManageError, McpManageErrorCode, McpMetadataRefreshRequest, McpRegisterServerRequest,
        McpServerDetails, McpServerDetailsRequest, McpServerRegistered, McpServerSummary,
        McpServerUnregistered, McpServersIndexed, McpUnregisterServerRequest,
    },
    topology::{
        mcp_manage, mcp_manage_at, tool_invoke_mcp, tool_invoke_mcp_at, tool_meta_mcp,
        tool_meta_mcp_refresh,
    },
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::debug;

use super::{
    McpGateway, McpIndex,
    ask_bridge::{ask, refusal},
    bridges::{Bridges, Heard},
};
use crate::{catalog::FORGET_AFTER, remote::RemoteTool};

/// How long a bridge may take to show a server, and to add one.
const DETAILS_WITHIN: Duration = Duration::from_secs(25);
const REGISTER_WITHIN: Duration = Duration::from_secs(55);

/// The pause after which no more answers to a request for everything are expected.
const QUIET: Duration = Duration::from_millis(500);

/// How long after it was asked for every bridge that lives has told its servers.
const HEARD_AFTER: Duration = Duration::from_secs(2);

/// The shortest time between two requests for everything.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// The servers of all bridges on the bus, as one [`McpGateway`].
///
/// It keeps what the bridges announce, forgets a bridge that fell silent, and asks again when it
/// missed something. A request goes to a bridge that has the server.
pub struct BusGateway {
    calls: Arc<Requester>,
    management: Requester,
    bridges: Arc<Mutex<Bridges>>,
    index: watch::Receiver<McpIndex>,
    started: Instant,
    task: JoinHandle<()>,
}

impl BusGateway {
    /// Listens for what bridges announce, and asks every one of them now. Calls go out through
    /// `calls`.
    ///
    /// # Errors
    /// When the queue for announcements can't be consumed.
    pub async fn start(calls: Arc<Requester>) -> Result<Arc<Self>, ConsumeError> {
        let bus = calls.bus().clone();
        let address = calls.address().clone().for_mcp_management();
        let queue = QueueSpec::exclusive(&tool_meta_mcp(), address.instance());
        let mut announcements = bus.consume(Subscription::on_receipt(queue, 64)).await?;
        // After the queue is there: what is announced from now on is heard.
        let mut refresh = Refresh { bus: bus.clone(), asked: None };
        refresh.ask().await;
        let (known, index) = watch::channel(McpIndex::default());
        let bridges = Arc::new(Mutex::new(Bridges::default()));
        let keeper = bridges.clone();
        let task = tokio::spawn(async move {
            let mut look = tokio::time::interval(FORGET_AFTER / 7);
            loop {
                let said = tokio::select! {
                    announcement = announcements.next() => {
                        let Some(announcement) = announcement else { break };
                        match announcement.envelope().decode(Limits::default()) {
                            Ok(said) => Some(said),
                            Err(error) => {
                                // It may quote what a server wrote.
                                debug!(%error, "unreadable index of MCP servers");
                                continue;
                            }
                        }
                    }
                    _ = look.tick() => None,
                };
                if follow(&keeper, &known, said) == Heard::Gap {
                    refresh.ask().await;
                }
            }
        });
        let management = Requester::new(bus, address);
        let started = Instant::now();
        Ok(Arc::new(Self { calls, management, bridges, index, started, task }))
    }

    /// Waits until some bridge announced a server, at most `wait`. Whether one did.
    pub async fn wait_for_any(&self, wait: Duration) -> bool {
        let mut index = self.index.clone();
        matches!(timeout(wait, index.wait_for(|index| !index.is_empty())).await, Ok(Ok(_)))
    }

    /// Waits until bridges announced servers and nothing was heard for half a second, at most `wait`.
    pub async fn settle(&self, wait: Duration) {
        let settled = async {
            self.wait_for_any(wait).await;
            let mut index = self.index.clone();
            index.mark_unchanged();
            while timeout(QUIET, index.changed()).await.is_ok_and(|changed| changed.is_ok()) {}
        };
        let _ = timeout(wait, settled).await;
    }

    /// The bridges that serve `server`, and whether these are all that there are.
    fn owners(&self, server: &str) -> (Vec<InstanceId>, bool) {
        let bridges = lock(&self.bridges);
        let owners = bridges.owners(server);
        // Bridges that were not heard of yet may lack it.
        let heard_all = self.started.elapsed() >= HEARD_AFTER;
        let all = heard_all && owners.len() == bridges.len();
        (owners, all)
    }

    async fn details_of(
        &self,
        request: McpServerDetailsRequest,
    ) -> Result<McpServerDetails, McpManageError> {
        let server = request.server_name.clone();
        let (owners, _) = self.owners(&server);
        // A bridge that nobody heard of yet may have it.
        let keys = match owners.as_slice() {
            [] => vec![mcp_manage()],
            owners => owners.iter().map(mcp_manage_at).collect(),
        };
        let deadline = Instant::now() + DETAILS_WITHIN;
        let mut ended = Err(refusal(&server, McpManageErrorCode::Unavailable, "nobody has it"));
        for key in keys {
            let left = deadline.saturating_duration_since(Instant::now());
            ended = ask(&self.management, key, &request, &server, left).await;
            // Of a bridge that just went away, or lost it to another.
            let elsewhere = |error: &McpManageError| {
                matches!(error.code, McpManageErrorCode::Unavailable | McpManageErrorCode::NotFound)
            };
            if !ended.as_ref().is_err_and(elsewhere) {
                break;
            }
        }
        ended
    }

    async fn unregister_of(&self, server: &str) -> Result<(), McpManageError> {
        let (owners, _) = self.owners(server);
        let key = owners.first().map_or_else(mcp_manage, mcp_manage_at);
        let request = McpUnregisterServerRequest { server_name: server.to_owned() };
        let _: McpServerUnregistered =
            ask(&self.management, key, &request, server, DETAILS_WITHIN).await?;
        Ok(())
    }

    async fn call_of(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        // Any bridge takes what all of them have; what only some have goes to one of those.
        let key = match self.owners(server) {
            (_, true) => tool_invoke_mcp(),
            (owners, false) => owners.first().map_or_else(tool_invoke_mcp, tool_invoke_mcp_at),
        };
        let remote = RemoteTool::new(stub(server, tool), self.calls.clone(), key);
        remote.of_server(server, tool).call(arguments, context).await
    }
}

impl McpGateway for BusGateway {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.clone()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(self.details_of(request))
    }

    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.call_of(server, tool, arguments, context))
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(async move {
            let server = request.server_name.clone();
            let registered: McpServerRegistered =
                ask(&self.management, mcp_manage(), &request, &server, REGISTER_WITHIN).await?;
            Ok(registered.server)
        })
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(self.unregister_of(server))
    }
}

impl Drop for BusGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for BusGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusGateway")
            .field("bridges", &lock(&self.bridges).len())
            .field("servers", &self.index.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Takes in what a bridge said, or looks for silent ones, and tells what changed.
fn follow(
    bridges: &Mutex<Bridges>,
    known: &watch::Sender<McpIndex>,
    said: Option<McpServersIndexed>,
) -> Heard {
    let mut bridges = lock(bridges);
    let heard = match said {
        Some(said) => bridges.hear(said),
        None => {
            bridges.forget_silent(FORGET_AFTER);
            Heard::Taken
        }
    };
    let now = bridges.index();
    known.send_if_modified(|index| {
        let changed = *index != now;
        *index = now;
        changed
    });
    heard
}

fn lock(bridges: &Mutex<Bridges>) -> MutexGuard<'_, Bridges> {
    bridges.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a tool that is called by its server and name alone: the worst.
fn stub(server: &str, tool: &str) -> ToolRegistration {
    ToolRegistration {
        name: tool.to_owned(),
        label: None,
        description: String::new(),
        tool_description: None,
        parameters: Value::Null,
        source: ToolSource::Mcp(server.to_owned()),
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

/// Asks all bridges for everything, not too often.
struct Refresh {
    bus: Arc<dyn Bus>,
    asked: Option<Instant>,
}

impl Refresh {
    async fn ask(&mut self) {
        if self.asked.is_some_and(|asked| asked.elapsed() < REFRESH_EVERY) {
            // The next heartbeat will show the gap again.
            return;
        }
        self.asked = Some(Instant::now());
        let envelope = Envelope::from_payload(&McpMetadataRefreshRequest::default());
        let publication = Publication::announcement(tool_meta_mcp_refresh(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "could not ask for the index of MCP servers; heartbeats will come");
        }
    }
}
