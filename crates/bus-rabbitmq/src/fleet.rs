//! How a process of the fleet comes to its bus.

use std::sync::Arc;

use rockbot_bus::{Bus, Observed, QueueGauge, connected_gauge, readiness_check};
use rockbot_contracts::QueueName;
use rockbot_service::{Health, Shutdown};

use crate::{
    bus::{ConnectError, RabbitBus},
    config::RabbitConfig,
};

/// A process's way to the others, watched over.
pub struct FleetConnection {
    /// The bus, counted and traced.
    pub bus: Arc<dyn Bus>,
    /// Tells how full the process's queue is, until dropped.
    pub queue: QueueGauge,
}

/// Waits for the broker as long as it takes, and has `health` know the bus and the depth of the queue
/// that the process works on. None when the process is told to stop first.
///
/// # Errors
/// As for [`RabbitBus::connect`].
///
/// # Cancellation
/// Dropping the future stops waiting.
pub async fn join(
    config: &RabbitConfig,
    works_on: QueueName,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<Option<FleetConnection>, ConnectError> {
    let Some(bus) = RabbitBus::connect(config, shutdown.requested()).await? else {
        return Ok(None);
    };
    let bus: Arc<dyn Bus> = Observed::new(Arc::new(bus), "rabbitmq");
    health.needs("bus", readiness_check(bus.clone()));
    health.refresh_with(connected_gauge(bus.clone()));
    let queue = QueueGauge::start(bus.clone(), works_on);
    Ok(Some(FleetConnection { bus, queue }))
}
