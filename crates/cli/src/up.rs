//! `rockbot up`: runs an embedded fleet until stopped.

use std::net::SocketAddr;

use anyhow::Context;
use rockbot_llm::LlmConfigError;
use rockbot_service::{
    Health, Metrics, Shutdown,
    admin::Admin,
    exit,
    telemetry::traces::{Identity, Traces},
};

use crate::{
    arguments::Up,
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    host::Host,
    print::note,
    settings::Settings,
    stored_conversations::ConversationStores,
    web::{Web, WebParts},
};

/// Name of the process in metrics and traces.
const NAME: &str = "rockbot";

/// Creates the exporter of traces where one is configured. Must be called within the runtime.
pub(crate) fn start_traces(settings: &Settings) -> Result<Option<Traces>, Failure> {
    let instance = settings.service.instance();
    let version = env!("CARGO_PKG_VERSION");
    let identity = Identity { name: NAME, version, instance: instance.as_str() };
    Traces::start(&settings.telemetry, identity).or_exit(exit::USAGE)
}

/// Health of the process, and the admin port where one is configured.
struct Monitored {
    health: Health,
    _admin: Option<Admin>,
}

impl Monitored {
    /// Starts the admin port. Metrics that are created before are not recorded.
    async fn start(address: Option<SocketAddr>, shutdown: &Shutdown) -> Result<Self, Failure> {
        let health = Health::new(shutdown.token().clone());
        let Some(address) = address else { return Ok(Self { health, _admin: None }) };
        let health = health.with_metrics(Metrics::start(NAME, env!("CARGO_PKG_VERSION")));
        let admin = Admin::start(address, health.clone()).await;
        let admin = admin.with_context(|| format!("admin.address: cannot listen on {address}"));
        let admin = admin.or_exit(exit::UNAVAILABLE)?;
        note!("admin port: http://{}/metrics", admin.address());
        Ok(Self { health, _admin: Some(admin) })
    }
}

pub(crate) async fn run(settings: &Settings, arguments: &Up) -> Outcome {
    let shutdown = Shutdown::on_signal().or_exit(exit::SOFTWARE)?;
    let monitored = Monitored::start(settings.admin.address, &shutdown).await?;
    let definition = settings.agent.definition().map_err(Failure::usage)?;
    let model = match rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok()) {
        Ok(resolved) => Some(resolved),
        Err(LlmConfigError::NotConfigured) => None,
        Err(error) => return Err(error).or_exit(exit::USAGE),
    };
    let stores = match &model {
        Some(_) => Some(ConversationStores::open(settings).await?),
        None => None,
    };
    let fleet = Fleet::embed(settings, stores.as_ref()).await?;
    let agent = definition.name.clone();
    let _queue = fleet.monitor(&monitored.health);
    note!("tool handler: file tools work in {}", settings.files.root.display());
    let host = match model.zip(stores.as_ref()) {
        Some((resolved, stores)) => {
            let name = definition.name.clone();
            let mut host =
                Host::start(&fleet, settings, stores, definition, resolved.model).await?;
            host.start_scheduler();
            note!("agent: {name}, model {}", resolved.origin);
            Some(host)
        }
        None => {
            note!(
                "agent: none, because no model is configured; `rockbot chat` shows how to configure one"
            );
            None
        }
    };
    if settings.embeds() {
        note!("bus: in memory, for this process only; use --bus amqp://… to connect to a broker");
    }
    let web = if arguments.web {
        let agent = host.as_ref().map(|_| &agent);
        let parts = WebParts {
            bus: fleet.bus.clone(),
            stores: stores.as_ref(),
            agent,
            servers: fleet.embedded_servers(),
            watches_from_start: false,
        };
        let web = Web::start(settings, parts).await?;
        note!("{}", web.notice());
        Some(web)
    } else {
        None
    };
    monitored.health.serving();
    note!("ready; stop with Ctrl-C or SIGTERM");
    shutdown.requested().await;
    if let Some(web) = web {
        web.stop().await;
    }
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.close().await;
    if let Some(stores) = stores {
        stores.close().await;
    }
    Ok(exit::OK)
}
