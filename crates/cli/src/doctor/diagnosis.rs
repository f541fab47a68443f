//! The state of a fleet.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, future::ready, stream};
use rockbot_agent::AgentClient;
use rockbot_bus::{BusReport, QueueState};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, QueueSpec,
    identity::{CLI, User},
    topology::{tool_invoke_mcp, user_message},
};
use rockbot_monitor::WorkQueue;
use rockbot_scripts::Isolation;
use rockbot_tool_rpc::{
    catalog::{KnownHandler, PoolConflict},
    mcp::{McpIndex, McpServerReport},
};
use tokio::time::timeout;

use super::{
    message_limit::{MessageLimit, MessageLimitProbe},
    round_trip::{self, RoundTrip},
};
use crate::{failure::Failure, fleet::Fleet, settings::Settings, work_queues};

/// Time limit for an agent to describe itself.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of agents that are asked at a time.
const CONCURRENT_REQUESTS: usize = 8;

/// The state of a fleet.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) bus: BusReport,
    pub(super) queues: Vec<WorkQueue>,
    pub(super) handlers: Vec<KnownHandler>,
    /// Tool names that several pools announce.
    pub(super) conflicts: Vec<PoolConflict>,
    pub(super) servers: KnownServers,
    /// Set when the handlers reject calls of this broker user.
    pub(super) rejection: Option<Rejection>,
    /// The user that may inspect every queue.
    pub(super) operator: String,
    pub(super) round_trip: RoundTrip,
    pub(super) scripts: Option<ScriptIsolation>,
    pub(super) split_agents: Vec<SplitAgent>,
    /// The response of the broker to a message over the limit of a fleet; `None` for an embedded fleet.
    pub(super) message_limit: Option<MessageLimit>,
}

/// State that one command keeps for all of its checks.
#[derive(Debug, Default)]
pub(super) struct Preparation {
    /// Asks the agents about their processes. Its queue stays on the broker until it expires.
    pub(super) agents: Option<AgentClient>,
    /// Probes the broker; `None` for an embedded fleet.
    pub(super) message_limit: Option<MessageLimitProbe>,
}

/// Why the handlers reject calls of this broker user.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) reason: String,
    /// The user whose calls they accept.
    pub(super) user: String,
}

/// An agent whose processes do not all share its conversations.
#[derive(Debug)]
pub(super) struct SplitAgent {
    pub(super) name: AgentName,
    /// Number of processes that do not share the conversations of the one that reported them.
    pub(super) foreign: u32,
}

/// The MCP servers of a fleet.
#[derive(Debug, Default)]
pub(super) struct KnownServers {
    /// Set when a bridge runs.
    pub(super) has_bridge: bool,
    /// The connected ones.
    pub(super) index: McpIndex,
    /// The states of all configured ones.
    pub(super) states: Vec<McpServerReport>,
}

/// The isolation of scripts in this process, or why they cannot run.
pub(super) type ScriptIsolation = Result<Isolation, String>;

impl Diagnosis {
    /// Checks a fleet: collects its state, and then sends the broker a message over the limit.
    pub(super) async fn check(
        settings: &Settings,
        fleet: &Fleet,
        preparation: &mut Preparation,
    ) -> Result<Self, Failure> {
        let mut diagnosis = Self::collect(settings, fleet, preparation.agents.as_ref()).await?;
        if let Some(probe) = &mut preparation.message_limit {
            diagnosis.message_limit = Some(probe.current(settings).await);
        }
        Ok(diagnosis)
    }

    /// Collects the state of a fleet.
    async fn collect(
        settings: &Settings,
        fleet: &Fleet,
        agents: Option<&AgentClient>,
    ) -> Result<Self, Failure> {
        let pools = work_queues::pools(settings, Vec::new());
        let discovered = fleet.discover_all("doctor", &pools).await?;
        let round_trip = round_trip::measure(fleet).await?;
        let pools = work_queues::pools(settings, discovered.directory.view().pools());
        let names = work_queues::configured(settings, &pools)?;
        let (bus, queues) = work_queues::inspect(fleet.bus.as_ref(), &names).await?;
        let catalog = discovered.directory.view().snapshot();
        let handlers: Vec<_> = catalog.handlers().cloned().collect();
        let conflicts = catalog.conflicts();
        let rejection = fleet.require_caller(&handlers).err().map(|failure| {
            let user = User::Cli.name(&settings.bus.namespace);
            let failure = failure.name_user(&User::Cli, &settings.bus.namespace);
            Rejection { reason: format!("{:#}", failure.cause), user }
        });
        let operator = User::Operator.name(&settings.bus.namespace);
        let servers = mcp_servers(settings, fleet).await?;
        let split_agents = match agents {
            Some(client) => split_agents(settings, client, &queues).await?,
            None => Vec::new(),
        };
        let scripts = if settings.embeds() { script_isolation(settings).await } else { None };
        Ok(Self {
            bus,
            queues,
            handlers,
            conflicts,
            servers,
            rejection,
            operator,
            round_trip,
            scripts,
            split_agents,
            message_limit: None,
        })
    }
}

/// Returns the agents whose processes report others with different conversations. An agent that does not describe
/// itself to this user is left out.
async fn split_agents(
    settings: &Settings,
    client: &AgentClient,
    queues: &[WorkQueue],
) -> Result<Vec<SplitAgent>, Failure> {
    let is_consumed = |name: &AgentName| {
        let inbox = QueueSpec::work(&user_message(name)).name;
        let state = queues.iter().find(|queue| queue.name == inbox).map(|queue| queue.state);
        match state {
            Some(QueueState::Present(depth)) => depth.consumers > 0,
            // It may run.
            Some(QueueState::Refused) | None => true,
            Some(QueueState::Missing) => false,
        }
    };
    let names: BTreeSet<_> = work_queues::configured_agents(settings)?.into_iter().collect();
    let names: Vec<_> = names.into_iter().filter(is_consumed).collect();
    let overviews = names.iter().map(async |name| {
        let request = ConversationRequest::Agent {};
        let response = timeout(OVERVIEW_TIMEOUT, client.request(name, &request)).await;
        match response {
            Ok(Ok(ConversationResponse::Agent { agent })) if agent.foreign_processes > 0 => {
                Some(SplitAgent { name: name.clone(), foreign: agent.foreign_processes })
            }
            _ => None,
        }
    });
    let answers = stream::iter(overviews).buffered(CONCURRENT_REQUESTS);
    Ok(answers.filter_map(ready).collect().await)
}

/// Returns the MCP servers. An embedded fleet has some only with a server file, and a running one only with
/// a bridge.
async fn mcp_servers(settings: &Settings, fleet: &Fleet) -> Result<KnownServers, Failure> {
    let has_servers = if settings.embeds() {
        settings.mcp.config.is_some()
    } else {
        fleet.consumers(&tool_invoke_mcp()).await? != Some(0)
    };
    if !has_servers {
        return Ok(KnownServers::default());
    }
    let servers = fleet.mcp_servers(CLI, None).await?;
    let index = servers.gateway.index().borrow().clone();
    let states = servers.gateway.states().borrow().clone();
    // Without the right to inspect the queue, only an announcement proves a bridge.
    let consumers =
        if settings.embeds() { None } else { fleet.consumers(&tool_invoke_mcp()).await? };
    let is_consumed = consumers.is_some_and(|consumers| consumers > 0);
    let has_bridge = is_consumed || !index.is_empty() || !states.is_empty();
    Ok(KnownServers { has_bridge, index, states })
}

/// Starts the script runner of this process to determine its isolation.
async fn script_isolation(settings: &Settings) -> Option<ScriptIsolation> {
    match settings.scripts.start().await {
        Ok(None) => None,
        Ok(Some(scripts)) => {
            let isolation = scripts.isolation().clone();
            scripts.close().await;
            Some(Ok(isolation))
        }
        Err(error) => Some(Err(error.to_string())),
    }
}
