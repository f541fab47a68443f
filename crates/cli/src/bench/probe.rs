//! Messages from this process to itself, over the bus.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use rockbot_bus::{Publication, Settlement, Subscription};
use rockbot_contracts::{Envelope, MessageId, QueueSpec, RoutingKey, topology::doctor_ping};
use rockbot_service::{Interrupts, exit};
use tokio::time::{MissedTickBehavior, interval};

use super::{Load, measurement::Measurement};
use crate::{
    failure::{Failure, OrExit},
    fleet::Fleet,
};

/// Interval between checks for lost messages.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

/// Sends confirmed messages, and measures the time until this process receives them. An interrupt ends the
/// measurement.
pub(super) async fn run(
    fleet: &Fleet,
    load: Load,
    interrupts: &mut Interrupts,
) -> Result<Measurement, Failure> {
    let mut queue = QueueSpec::exclusive(&doctor_ping(), &fleet.instance);
    // The key is unique: others may measure at the same time.
    let key = RoutingKey::new(queue.name.as_str()).or_exit(exit::SOFTWARE)?;
    queue.bindings = vec![(&key).into()];
    let consuming = fleet.bus.consume(Subscription::new(queue, load.concurrency));
    let mut consumer = consuming.await.or_exit(exit::UNAVAILABLE)?;
    let mut measured = Measurement::default();
    let mut sent = 0;
    let mut open: HashMap<MessageId, Instant> = HashMap::new();
    let mut publishing = FuturesUnordered::new();
    let mut expiry = interval(EXPIRY_INTERVAL);
    expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    while measured.ended() < load.calls {
        while sent < load.calls && open.len() < usize::from(load.concurrency) {
            let envelope = Envelope::raw("Ping", b"{}".to_vec()).transient();
            let id = envelope.message_id.clone();
            open.insert(id.clone(), Instant::now());
            sent += 1;
            let published = fleet.bus.publish(Publication::mandatory(key.clone(), envelope));
            publishing.push(async move { (id, published.await) });
        }
        tokio::select! {
            Some((id, published)) = publishing.next() => {
                if published.is_err() && open.remove(&id).is_some() {
                    measured.fail("not published");
                }
            }
            delivery = consumer.next() => {
                let Some(delivery) = delivery else {
                    return Err(Failure::unavailable("the connection to the bus was closed"));
                };
                if let Some(sent_at) = open.remove(&delivery.envelope().message_id) {
                    measured.succeed(sent_at.elapsed());
                }
                delivery.settle(Settlement::Ack).await.or_exit(exit::UNAVAILABLE)?;
            }
            _ = expiry.tick() => {
                let before = open.len();
                open.retain(|_, sent_at| sent_at.elapsed() < load.timeout);
                (open.len()..before).for_each(|_| measured.fail("timeout"));
            }
            _ = interrupts.recv() => break,
        }
    }
    Ok(measured.finish(started.elapsed()))
}
