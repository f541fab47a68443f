//! The connection to the fleet: the bus, and the client side of handlers and bridges.

use std::sync::Arc;

use rockbot_bus::{Bus, QueueGauge, Requester};
use rockbot_bus_rabbitmq::RabbitConfig;
use rockbot_contracts::{
    QueueSpec,
    topology::{ReplyAddress, user_message},
};
use rockbot_fleet::{FleetConnection, join};
use rockbot_service::{Health, ServeError, Shutdown};
use rockbot_tool_rpc::{HandlerView, ReplyProbe, mcp::BusGateway};

use super::{Settings, unavailable_error};

pub(crate) struct FleetClient {
    pub(crate) bus: Arc<dyn Bus>,
    /// Name of the process on the broker and in logs.
    pub(crate) name: String,
    pub(super) address: ReplyAddress,
    pub(super) requester: Arc<Requester>,
    pub(super) gateway: Arc<BusGateway>,
    queue: QueueGauge,
}

impl FleetClient {
    /// Waits for the broker and starts the clients. Returns `None` if the shutdown is requested first.
    pub(crate) async fn join(
        settings: &Settings,
        shutdown: &Shutdown,
        health: &Health,
    ) -> Result<Option<Self>, ServeError> {
        let agent = &settings.definition.name;
        let instance = settings.service.instance();
        let name = format!("agent {agent}/{instance}");
        let inbox = QueueSpec::inbox(&user_message(agent)).name;
        let config = RabbitConfig::from_section(&settings.bus, &name);
        let Some(connection) = join(&config, inbox, health, shutdown).await? else {
            return Ok(None);
        };
        let FleetConnection { bus, queue } = connection;
        let address = ReplyAddress::new(agent.clone(), instance);
        let requester = Arc::new(Requester::new(bus.clone(), address.clone()));
        health.refresh_with(requester.gauges());
        let gateway = BusGateway::start(requester.clone()).await.map_err(unavailable_error)?;
        Ok(Some(Self { bus, name, address, requester, gateway, queue }))
    }

    /// Starts to probe the replies of handlers and makes readiness depend on them.
    pub(crate) fn start_reply_probe(&self, handlers: HandlerView, health: &Health) -> ReplyProbe {
        let keys = move || handlers.invoke_keys();
        let probe = ReplyProbe::start(self.requester.clone(), keys);
        health.needs("replies", probe.health_check());
        probe
    }

    pub(crate) async fn close(self) {
        let Self { bus, queue, .. } = self;
        drop(queue);
        bus.close().await;
    }
}
