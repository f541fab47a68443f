//! `rockbot-agent`: runs an agent that receives user messages over RabbitMQ.

mod process;

use std::{process::ExitCode, sync::Arc, time::Duration};

use futures_util::future::OptionFuture;
use rockbot_agent::{
    ConversationServiceBuilder, PeerService, Scheduler, serve as serve_inbox, serve_shared,
};
use rockbot_hooks::OperatorHooks;
use rockbot_service::{Health, Process, ServeError, Shutdown};

use self::process::{
    Agents, ConversationStores, FleetClient, Settings, Stores, Tools, configuration_error,
    unavailable_error,
};

/// Tool calls make many small allocations on several threads, which mimalloc handles well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-agent",
    about: "Answers user messages over RabbitMQ, and calls the tools of handlers.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

fn main() -> ExitCode {
    PROCESS.serve(Settings::read, serve)
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let resolved = settings.resolve_model()?;
    let models = settings.model_tiers(resolved.model)?;
    let hooks = OperatorHooks::start(&settings.hooks, "agent", &settings.service.instance())
        .map_err(configuration_error)?;
    let stores = Stores::open(&settings).await?;
    let Some(fleet) = FleetClient::join(&settings, shutdown, health).await? else { return Ok(()) };
    stores.add_health_check(health);
    let instance = settings.service.instance();
    let Some(conversations) =
        ConversationStores::open(&settings, instance.clone(), shutdown).await?
    else {
        return Ok(());
    };
    conversations.add_health_check(health);
    let conversations = Arc::new(conversations);
    let schedule = conversations.schedule(&settings, stores.memory());
    let mut tools = Tools::start(&settings, &fleet, &stores, schedule.clone()).await?;
    let agents =
        Agents::new(&settings, models, &fleet, &stores, conversations.clone(), &tools, &hooks);
    let Agents { primary, team } = agents;
    tools.add_team(&team).await;
    let requests =
        ConversationServiceBuilder::for_agent(primary.clone()).with_schedule(schedule.clone());
    let requests = requests.serve(fleet.bus.clone()).await.map_err(unavailable_error)?;
    tokio::select! {
        () = tools.discovered() => {}
        () = shutdown.requested() => {}
    }
    let (bus, concurrency) = (fleet.bus.clone(), settings.agent.concurrency);
    let agent = primary.clone();
    let inbox = match conversations.sharing(&settings) {
        Some(sharing) => serve_shared(primary, bus, concurrency, sharing).await,
        None => serve_inbox(primary, bus, concurrency).await,
    };
    let inbox = inbox.map_err(unavailable_error)?;
    let peers = PeerService::start(&agent, fleet.bus.clone(), tools.agents.clone(), &instance);
    let peers = peers.await.map_err(unavailable_error)?;
    let scheduler =
        schedule.map(|schedule| Scheduler::start(schedule, agent, fleet.bus.clone(), &inbox));
    let probe = settings.agent.probe_replies;
    let probe = probe.then(|| fleet.start_reply_probe(tools.handlers(), health));
    health.serving();
    tracing::info!(name = %fleet.name, model = resolved.origin, "ready");

    let ended = async {
        match &peers {
            Some(peers) => tokio::select! {
                () = inbox.ended() => {}
                () = peers.ended() => {}
            },
            None => inbox.ended().await,
        }
    };
    let served = shutdown.requested_before(ended).await;
    let grace = settings.service.drain();
    let scheduler = OptionFuture::from(scheduler.map(|scheduler| scheduler.drain(grace)));
    let peers = OptionFuture::from(peers.map(|peers| peers.drain(grace)));
    // First, so that no task is accepted that this process would leave at once.
    peers.await;
    tokio::join!(inbox.drain(grace), scheduler);
    team.shut_down(Duration::ZERO).await;
    drop((tools, probe, requests));
    fleet.close().await;
    hooks.close().await;
    stores.close().await;
    conversations.close().await;
    served
}
