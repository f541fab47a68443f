//! Whether the broker limits the size of messages as a fleet expects.

use std::time::Duration;

use rockbot_bus::{Bus as _, Publication, PublishError};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{Envelope, InstanceId, RoutingKey, json::Limits, topology::doctor_ping};

use crate::settings::Settings;

/// Time limit of connecting and of the message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns `true` if the broker accepts a message over the limit of a fleet. The message has no queue, so the
/// broker drops it. Returns `false` too if that is not known, for example without the right to publish it.
pub(super) async fn accepts_oversized(settings: &Settings) -> bool {
    let limit = Limits::default().bytes;
    // Larger than the message, which this process would reject otherwise.
    let limits = Limits { bytes: 2 * limit };
    let Ok(bus) = RabbitBus::start(&RabbitConfig { limits, ..settings.rabbit() }) else {
        return false;
    };
    let accepted = bus.connected(TIMEOUT).await.is_ok() && publish(&bus, limit + 1).await;
    bus.close().await;
    accepted
}

async fn publish(bus: &RabbitBus, bytes: usize) -> bool {
    let key = format!("{}.{}", doctor_ping(), InstanceId::generate());
    let Ok(key) = RoutingKey::new(key) else { return false };
    let envelope = Envelope::raw("Ping", vec![b' '; bytes]).transient();
    let sent = bus.publish(Publication::mandatory(key, envelope).within(TIMEOUT)).await;
    matches!(sent, Ok(()) | Err(PublishError::Unroutable { .. }))
}
