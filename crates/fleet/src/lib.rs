//! Connection of a process to its fleet.
//!
//! - [`join`]: the bus, for any process;
//! - [`HandlerSettings`], [`HandlerConnection`]: the configuration and the connections that all processes
//!   with a call journal share.

mod handler;

use std::sync::Arc;

use rockbot_bus::{Bus, Observed, QueueGauge, connected_gauge, readiness_check};
use rockbot_bus_rabbitmq::{ConnectError, RabbitBus, RabbitConfig};
use rockbot_contracts::QueueName;
use rockbot_service::{Health, ServeError, Shutdown};

pub use self::handler::{HandlerConnection, HandlerSettings};

/// A process's connection to the other processes of its fleet.
pub struct FleetConnection {
    /// The bus, with metrics and traces.
    pub bus: Arc<dyn Bus>,
    /// Updates the metrics of the process's queue until dropped.
    pub queue: QueueGauge,
}

/// Connects to the broker and adds the bus to `health`. Waits for the broker without a limit. Returns
/// `None` when the process shuts down first.
///
/// # Errors
/// Those of [`RabbitBus::connect`], as the error with which the process ends.
///
/// # Cancellation
/// Dropping the future stops waiting.
pub async fn join(
    config: &RabbitConfig,
    work_queue: QueueName,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<Option<FleetConnection>, ServeError> {
    let Some(bus) = RabbitBus::connect(config, shutdown.requested())
        .await
        .map_err(|error| serve_error(&error))?
    else {
        return Ok(None);
    };
    let bus: Arc<dyn Bus> = Observed::new(Arc::new(bus), "rabbitmq");
    health.needs("bus", readiness_check(bus.clone()));
    health.refresh_with(connected_gauge(bus.clone()));
    let queue = QueueGauge::start(bus.clone(), work_queue);
    Ok(Some(FleetConnection { bus, queue }))
}

/// Returns the error with which the process ends.
fn serve_error(error: &ConnectError) -> ServeError {
    match error {
        ConnectError::Configuration(_) => ServeError::Configuration(error.to_string()),
        ConnectError::Refused(_) => ServeError::Unavailable(error.to_string()),
    }
}
