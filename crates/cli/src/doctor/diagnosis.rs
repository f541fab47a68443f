//! The state of a fleet.

use rockbot_bus::BusReport;
use rockbot_contracts::{
    identity::{CLI, User},
    topology::tool_invoke_mcp,
};
use rockbot_monitor::WorkQueue;
use rockbot_scripts::Isolation;
use rockbot_tool_rpc::{
    catalog::{KnownHandler, PoolConflict},
    mcp::{McpIndex, McpServerReport},
};

use super::round_trip::{self, RoundTrip};
use crate::{failure::Failure, fleet::Fleet, settings::Settings, work_queues};

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
    pub(super) rejection: Option<String>,
    /// The user that may inspect every queue.
    pub(super) operator: String,
    pub(super) round_trip: RoundTrip,
    pub(super) scripts: Option<ScriptIsolation>,
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
    /// Collects the state of a fleet.
    pub(super) async fn collect(settings: &Settings, fleet: &Fleet) -> Result<Self, Failure> {
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
            let failure = failure.name_user(&User::Cli, &settings.bus.namespace);
            format!("{:#}", failure.cause)
        });
        let operator = User::Operator.name(&settings.bus.namespace);
        let servers = mcp_servers(settings, fleet).await?;
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
        })
    }
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
