//! The connections of the process: to the bus, once for each broker user, and to the store.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::FutureExt;
use rockbot_bus::{Bus, Observed, QueueGauge, readiness_check};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{AgentName, QueueSpec, topology::user_response};
use rockbot_fleet::{FleetConnection, join};
use rockbot_gateway::{ConnectionSection, GatewayParts};
use rockbot_service::{Health, ServeError, Shutdown};
use rockbot_store::{Clock, reachable};
use rockbot_store_sql::connect_with_retry;

use super::{settings::Settings, unavailable_error};

/// The open connections.
pub(crate) struct Connections {
    parts: GatewayParts,
    /// Those of remote agents that have a broker user of their own.
    remote_agents: BTreeMap<AgentName, Arc<dyn Bus>>,
    queue: QueueGauge,
}

impl Connections {
    /// Opens the store and connects to the broker. Waits for both without a limit. Returns `None` if the
    /// shutdown is requested first.
    pub(crate) async fn open(
        settings: &Settings,
        health: &Health,
        shutdown: &Shutdown,
    ) -> Result<Option<Self>, ServeError> {
        let section = &settings.gateway;
        let url = section.store_url().map_err(ServeError::Configuration)?;
        let store = connect_with_retry(&url, Clock::System, shutdown.requested()).await;
        let store = store
            .map_err(|error| ServeError::Configuration(format!("gateway.store: {url}: {error}")))?;
        let Some(store) = store else { return Ok(None) };
        let instance = settings.service.instance();
        let name = format!("gateway/{instance}");
        let replies = user_response(&instance);
        let queue = QueueSpec::reply(&replies, Vec::new()).name;
        let rabbit = RabbitConfig::from_section(&settings.bus, &name);
        let Some(connection) = join(&rabbit, queue, health, shutdown).await? else {
            return Ok(None);
        };
        let FleetConnection { bus, queue } = connection;
        let connected = GatewayParts::connect(bus, section.agents.clone(), store, instance).await;
        let mut parts = connected.map_err(unavailable_error)?;
        health.needs("store", reachable(parts.store.clone()));
        let watch = settings.rabbit(&section.watch, &format!("{name} watch"));
        let letters = settings.rabbit(&section.letters, &format!("{name} letters"));
        parts.watch = further(watch, "bus-watch", health)?;
        parts.letters_user = letters.as_ref().and_then(RabbitConfig::user).map(Into::into);
        parts.letters = further(letters, "bus-letters", health)?;
        parts.namespace = settings.bus.namespace.as_str().into();
        let calls = settings.rabbit(&section.calls, &format!("{name} calls"));
        parts.calls = further(calls, "bus-calls", health)?;
        let remote_agents = remote_agents(settings, &name, health)?;
        Ok(Some(Self { parts, remote_agents, queue }))
    }

    /// Returns the connection for the tasks of a remote agent.
    pub(crate) fn remote_agent(&self, agent: &AgentName) -> Arc<dyn Bus> {
        self.remote_agents.get(agent).unwrap_or(&self.parts.bus).clone()
    }

    /// Returns the ports of the faces.
    pub(crate) fn parts(&self) -> &GatewayParts {
        &self.parts
    }

    pub(crate) async fn close(self) {
        let Self { parts, remote_agents, queue } = self;
        drop(queue);
        let GatewayParts { bus, watch, letters, calls, store, .. } = parts;
        let further =
            [watch, letters, calls].into_iter().flatten().chain(remote_agents.into_values());
        for bus in further.chain([bus]) {
            bus.close().await;
        }
        store.close().await;
    }
}

/// Starts the connections of the remote agents that have a broker user of their own.
fn remote_agents(
    settings: &Settings,
    name: &str,
    health: &Health,
) -> Result<BTreeMap<AgentName, Arc<dyn Bus>>, ServeError> {
    let mut buses = BTreeMap::new();
    for (agent, remote) in &settings.gateway.remote_agents {
        let own = ConnectionSection { url: remote.bus_url.clone() };
        let own = settings.rabbit(&own, &format!("{name} {agent}"));
        if let Some(bus) = start(own, "bus-remote-agents")? {
            buses.insert(agent.clone(), bus);
        }
    }
    if !buses.is_empty() {
        let checks: Vec<_> = buses.values().cloned().map(readiness_check).collect();
        health.needs("bus-remote-agents", move || {
            let checks: Vec<_> = checks.iter().map(|check| check()).collect();
            async move {
                for check in checks {
                    check.await?;
                }
                Ok(())
            }
            .boxed()
        });
    }
    Ok(buses)
}

/// Starts a further connection, if it is configured. It is not waited for: without it, the faces report what
/// they cannot show.
fn further(
    config: Option<RabbitConfig>,
    name: &'static str,
    health: &Health,
) -> Result<Option<Arc<dyn Bus>>, ServeError> {
    let bus = start(config, name)?;
    if let Some(bus) = &bus {
        health.needs(name, readiness_check(bus.clone()));
    }
    Ok(bus)
}

fn start(
    config: Option<RabbitConfig>,
    name: &'static str,
) -> Result<Option<Arc<dyn Bus>>, ServeError> {
    let Some(config) = config else { return Ok(None) };
    let bus = RabbitBus::start(&config)
        .map_err(|error| ServeError::Configuration(format!("{name}: {error}")))?;
    Ok(Some(Observed::new(Arc::new(bus), "rabbitmq")))
}
