//! `rockbot-agent`: an agent behind its queue on RabbitMQ.

use std::{process::ExitCode, sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentMemory, AgentParts, AgentSection, Approvals, McpParts, McpSection,
    McpServices, MemorySection, ModelBehaviours, PinsSection, ServiceSearch, Team,
    serve as open_door,
};
use rockbot_bus::{Bus, Requester};
use rockbot_bus_rabbitmq::{FleetConnection, RabbitConfig, join};
use rockbot_contracts::{
    QueueSpec,
    topology::{ReplyAddress, tool_invoke, user_message},
};
use rockbot_hooks::{HookSettings, OperatorHooks};
use rockbot_llm::LlmConfig;
use rockbot_scripts::{BusRunner, ExecutePythonScript, RunnerName, ScriptsSection};
use rockbot_service::{
    BusSection, Configuration, Health, Process, ServeError, ServiceSection, Shutdown,
};
use rockbot_store::{Clock, reachable};
use rockbot_tool_rpc::{
    CatalogDirectory, ReplyProbe,
    mcp::{BusGateway, McpGateway},
};
use rockbot_tools::{
    ApprovalSection, CallAccount, LayerOptions, Outputs, OutputsSection, Redactor, Tool,
    ToolOutput, ToolPins, ToolRegistry, guide_tools, guides, outputs,
};
use secrecy::ExposeSecret;

/// Calls are many small allocations that cross threads; this allocator is made for those.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-agent",
    about: "Talks to people over RabbitMQ, and calls the tools that handlers run.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    section: AgentSection,
    mcp: McpSection,
    memory: MemorySection,
    outputs: OutputsSection,
    pins: PinsSection,
    approval: ApprovalSection,
    scripts: ScriptsSection,
    definition: Option<AgentDefinition>,
    llm: LlmConfig,
    models: ModelBehaviours,
    hooks: HookSettings,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let section: AgentSection = configuration.section("agent");
    let llm: LlmConfig = configuration.section("llm");
    let models: ModelBehaviours = configuration.section("models");
    for problem in section
        .problems()
        .into_iter()
        .chain(llm.problems().into_iter().map(|problem| format!("llm: {problem}")))
        .chain(models.problems())
    {
        configuration.problem(problem);
    }
    let mcp: McpSection = configuration.section("mcp");
    let pins: PinsSection = configuration.section("pins");
    let approval: ApprovalSection = configuration.section("approval");
    for problem in approval.problems() {
        configuration.problem(problem);
    }
    for problem in [mcp.store().err(), pins.url().err()].into_iter().flatten() {
        configuration.problem(problem);
    }
    let memory: MemorySection = configuration.section("memory");
    for problem in memory.problems() {
        configuration.problem(problem);
    }
    let outputs: OutputsSection = configuration.section("outputs");
    for problem in outputs.problems() {
        configuration.problem(problem);
    }
    let scripts: ScriptsSection = configuration.section("scripts");
    let bus: BusSection = configuration.section("bus");
    let service: ServiceSection = configuration.section("service");
    let production = service.is_production();
    let scripts_problems = scripts.validate(&[RunnerName::Bus], production);
    for problem in RabbitConfig::from_section(&bus, "")
        .problems(production)
        .into_iter()
        .chain(scripts_problems)
    {
        configuration.problem(problem);
    }
    if let Err(problem) = rockbot_llm::resolve(&llm, &|name| std::env::var(name).ok()) {
        configuration.problem(format!("llm: {problem}"));
    }
    let definition = section.definition().ok();
    let hooks = HookSettings::read(configuration);
    Settings {
        service,
        bus,
        definition,
        section,
        mcp,
        memory,
        outputs,
        pins,
        approval,
        scripts,
        llm,
        models,
        hooks,
    }
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings {
        service,
        bus,
        section,
        mcp,
        memory,
        outputs,
        pins,
        approval,
        scripts,
        definition,
        llm,
        models,
        hooks,
    } = settings;
    let configuration =
        |problem: &dyn std::fmt::Display| ServeError::Configuration(problem.to_string());
    let unavailable =
        |problem: &dyn std::fmt::Display| ServeError::Unavailable(problem.to_string());
    let definition = definition.unwrap_or_else(AgentDefinition::assistant);
    let resolved = rockbot_llm::resolve(&llm, &|name| std::env::var(name).ok())
        .map_err(|problem| configuration(&problem))?;
    let key = llm.known_key();
    let known = [Some(&bus.url), key.as_ref()].into_iter().flatten();
    let secrets: Vec<_> = known.map(|secret| secret.expose_secret().to_owned()).collect();
    let all_pins = pins.url().map_err(|problem| configuration(&problem))?;
    let mcp_pins = mcp.store().map_err(|problem| configuration(&problem))?;
    let pins_all = all_pins.is_some();
    let pins = match all_pins.or(mcp_pins) {
        Some(url) => {
            let store = rockbot_store_sql::connect(&url, Clock::System).await;
            Some(store.map_err(|problem| unavailable(&format!("pins: {url}: {problem}")))?)
        }
        None => None,
    };
    let memory = AgentMemory::open(&memory, |url| async move {
        rockbot_store_sql::connect(&url, Clock::System).await
    })
    .await
    .map_err(|problem| unavailable(&problem))?;
    let memory = memory.map(Arc::new);
    let instance = service.instance();
    let hooks = OperatorHooks::start(&hooks, "agent", &instance)
        .map_err(|problem| configuration(&problem))?;
    let name = format!("agent {}/{instance}", definition.name);
    let inbox = QueueSpec::inbox(&user_message(&definition.name)).name;
    let joined = join(&RabbitConfig::from_section(&bus, &name), inbox, health, shutdown).await?;
    let Some(FleetConnection { bus, queue }) = joined else { return Ok(()) };
    if let Some(store) = &pins {
        health.needs("store", reachable(store.clone()));
    }
    let address = ReplyAddress::new(definition.name.clone(), instance);
    let requester = Arc::new(Requester::new(bus.clone(), address.clone()));
    health.refresh_with(requester.gauges());
    let gateway = BusGateway::start(requester.clone()).await;
    let gateway = gateway.map_err(|problem| unavailable(&problem))?;
    let servers = McpServices::new(gateway.clone(), &definition);
    let services = ServiceSearch::new(vec![Arc::new(servers)]);
    let outputs = memory.as_ref().and_then(|memory| memory.outputs(&outputs));
    let registry = Arc::new(ToolRegistry::new());
    // First: no handler's tool takes the place of these.
    for tool in own_tools(&scripts, &bus, address, memory.as_deref(), outputs.as_ref(), &services) {
        registry.register(tool).map_err(|problem| configuration(&problem))?;
    }
    let directory = CatalogDirectory::start(requester.clone(), registry.clone())
        .await
        .map_err(|problem| unavailable(&problem))?;
    let layers = LayerOptions {
        redactor: Redactor::from_environment(secrets),
        account: Some(Arc::new(CallAccount::default())),
        logs: true,
        outputs,
        hooks: hooks.hooks(),
        ..LayerOptions::default()
    };
    let own = definition.name.clone();
    let approvals = Approvals::new(approval);
    let hire = {
        let (model, registry, store) = (resolved.model, registry.clone(), pins.clone());
        let memory = memory.clone();
        move |definition: AgentDefinition| {
            let gateway: Arc<dyn McpGateway> = gateway.clone();
            let pins = store.clone();
            let pins = pins.map(|store| Arc::new(ToolPins::new(store, definition.name.clone())));
            let behaviour = models.of(definition.model.as_deref().unwrap_or(model.name()));
            let may_register = mcp.register;
            let servers = McpParts { pins: pins.clone(), may_register, ..McpParts::new(gateway) };
            let mut parts = AgentParts::new(definition, model.clone(), registry.clone());
            if let Some(memory) = &memory {
                parts.remember(memory);
            }
            AgentParts {
                mcp: Some(servers),
                pins: pins.filter(|_| pins_all),
                approvals: approvals.clone(),
                layers: layers.clone(),
                behaviour,
                ..parts
            }
        }
    };
    let mut parts = hire(definition);
    parts.context.push(services);
    let agent = Agent::new(parts);
    let team = Team::new(own, registry, Arc::new(hire));
    if let Some(folder) = section.directory {
        team.watch(folder);
    }
    let door = open_door(agent, bus.clone(), section.concurrency)
        .await
        .map_err(|problem| unavailable(&problem))?;
    let probe = section.probe_replies.then(|| ReplyProbe::start(requester.clone(), tool_invoke()));
    if let Some(probe) = &probe {
        health.needs("replies", probe.health_check());
    }
    health.serving();
    tracing::info!(%name, model = resolved.origin, "ready");
    shutdown.requested().await;
    door.drain(service.drain()).await;
    team.shut_down(Duration::ZERO).await;
    drop((directory, queue, probe));
    bus.close().await;
    hooks.close().await;
    if let Some(store) = pins {
        store.close().await;
    }
    if let Some(memory) = memory {
        memory.close().await;
    }
    Ok(())
}

/// The tools that no handler announces.
fn own_tools(
    scripts: &ScriptsSection,
    bus: &Arc<dyn Bus>,
    address: ReplyAddress,
    memory: Option<&AgentMemory>,
    outputs: Option<&Arc<Outputs>>,
    services: &Arc<ServiceSearch>,
) -> Vec<Arc<dyn Tool>> {
    let mut guides =
        vec![guides::FILES, rockbot_agent::mcp::GUIDE, services.guide(), outputs::GUIDE];
    let mut tools: Vec<Arc<dyn Tool>> = vec![services.tool()];
    if let Some(memory) = memory {
        tools.extend(memory.tools());
        guides.extend(memory.guides());
    }
    if let Some(outputs) = outputs {
        tools.push(Arc::new(ToolOutput::new(outputs.clone())));
    }
    if scripts.runner == RunnerName::Bus {
        let runner = Arc::new(BusRunner::new(bus.clone(), address));
        tools.push(Arc::new(ExecutePythonScript::new(runner, true)));
        guides.push(rockbot_scripts::GUIDE);
    }
    tools.extend(guide_tools(&guides));
    tools
}
