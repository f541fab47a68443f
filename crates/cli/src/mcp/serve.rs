//! `rockbot mcp serve`: the fleet as an MCP server over standard input and output.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream};
use rockbot_agent::{HandlerGuides, RemoteAgent};
use rockbot_contracts::{AgentName, InstanceId, topology::ReplyAddress};
use rockbot_mcp_server::{
    Discovery, FleetParts, McpClient, McpFleet, McpServerSection, serve_stdio,
};
use rockbot_service::{Shutdown, exit};
use rockbot_tool_rpc::{CatalogDirectory, HandlerView, mcp::McpGateway};
use rockbot_tools::{Guides, LayerOptions, Tool, ToolRegistry};

use crate::{
    arguments::ServeMcp,
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, agent_client},
    settings::Settings,
};

/// Caller name of the command on the bus.
const CALLER: &str = "cli";

/// Time limit for the descriptions of the agents.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of agents that are asked concurrently.
const CONCURRENT_REQUESTS: usize = 8;

/// The tools of the fleet. Dropping it stops their updates.
struct Tools {
    registry: Arc<ToolRegistry>,
    handlers: HandlerView,
    servers: Arc<dyn McpGateway>,
    announced: BoxFuture<'static, ()>,
    _directory: CatalogDirectory,
}

pub(super) async fn run(settings: &Settings, options: &ServeMcp) -> Outcome {
    let client =
        options.client.clone().unwrap_or_else(|| format!("stdio-{}", InstanceId::generate()));
    let section = section(settings, options);
    let client = McpClient::new(&client, section.tools.clone()).or_exit(exit::USAGE)?;
    if settings.embeds() && !section.agents.is_empty() {
        return Err(Failure::usage(
            "an embedded fleet has no agents; name a running fleet with --bus",
        ));
    }
    let shutdown = Shutdown::on_signal().or_exit(exit::SOFTWARE)?;
    let fleet = Fleet::open(settings).await?;
    let served = serve(&fleet, settings, section, client, &shutdown).await;
    fleet.close().await;
    served
}

/// Returns the section with the options of the command.
fn section(settings: &Settings, options: &ServeMcp) -> McpServerSection {
    let mut section = settings.mcp_server.clone();
    if !options.agents.is_empty() {
        section.agents.clone_from(&options.agents);
    }
    if !options.allow.is_empty() {
        section.tools.allow.clone_from(&options.allow);
    }
    section.tools.deny.extend(options.deny.iter().cloned());
    section
}

async fn serve(
    fleet: &Fleet,
    settings: &Settings,
    section: McpServerSection,
    client: McpClient,
    shutdown: &Shutdown,
) -> Outcome {
    let Tools { registry, handlers, servers, announced: all_announced, _directory } =
        tools(fleet).await?;
    let guides = Guides::new([]);
    guides.add(Arc::new(HandlerGuides::new(handlers.clone(), registry.clone())));
    let (sender, announced) = tokio::sync::oneshot::channel();
    let parts = FleetParts {
        caller: AgentName::new(CALLER).or_exit(exit::USAGE)?,
        registry,
        servers: Some(servers),
        agents: agents(fleet, &section).await?,
        guides,
        layers: LayerOptions { redactor: fleet.redactor.clone(), ..LayerOptions::default() },
        announced: Box::pin(async move {
            all_announced.await;
            // An error means that the command is ending.
            let _ = sender.send(());
        }),
        section,
    };
    let served = McpFleet::start(parts);
    let permitted = async {
        // An error means that the fleet is not complete in time; its tools follow later.
        let _ = announced.await;
        match fleet.require_caller(&handlers.handlers()) {
            Ok(()) => std::future::pending().await,
            Err(failure) => failure,
        }
    };
    let (stop, drain) = (shutdown.token().clone(), settings.service.drain());
    tokio::select! {
        served = serve_stdio(served, client, stop, drain) => {
            served.or_exit(exit::USAGE)?;
            Ok(exit::OK)
        }
        failure = permitted => Err(failure),
    }
}

/// Discovers the tools of the fleet.
async fn tools(fleet: &Fleet) -> Result<Tools, Failure> {
    if let Some(servers) = fleet.embedded_servers() {
        let discovered = fleet.discover(CALLER).await?;
        return Ok(Tools {
            registry: discovered.registry,
            handlers: discovered.directory.view(),
            servers,
            announced: fleet.servers_settled(),
            _directory: discovered.directory,
        });
    }
    let caller = AgentName::new(CALLER).or_exit(exit::USAGE)?;
    let address = ReplyAddress::new(caller, fleet.instance.clone());
    let discovery = Discovery::start(fleet.bus.clone(), address).await;
    let discovery = discovery.or_exit(exit::UNAVAILABLE)?;
    Ok(Tools {
        announced: discovery.announced(),
        registry: discovery.registry,
        handlers: discovery.directory.view(),
        servers: discovery.servers,
        _directory: discovery.directory,
    })
}

/// Returns the agents as tools, with their descriptions where they run.
async fn agents(fleet: &Fleet, section: &McpServerSection) -> Result<Vec<Arc<dyn Tool>>, Failure> {
    if section.agents.is_empty() {
        return Ok(Vec::new());
    }
    let client = agent_client(fleet.bus.clone()).await?;
    let client = Arc::new(client.with_idle_timeout(section.max_timeout));
    let described = section
        .agents
        .iter()
        .map(|agent| RemoteAgent::describe(client.clone(), agent.clone(), DESCRIBE_TIMEOUT));
    let described: Vec<_> = described.collect();
    let agents = stream::iter(described).buffered(CONCURRENT_REQUESTS);
    Ok(agents.map(|agent| Arc::new(agent) as Arc<dyn Tool>).collect().await)
}
