//! The round-trip time of a message to this process, and the consumers of its reply queue.

use std::time::{Duration, Instant};

use rockbot_bus::{
    Consumer, Publication, QueueReport, Settlement, Subscription, report::QueueDepth,
};
use rockbot_contracts::{
    AgentName, Envelope, QueueSpec, RoutingKey,
    identity::CLI,
    topology::{ReplyAddress, doctor_ping},
};
use rockbot_service::exit;
use tokio::time::timeout;

use crate::{
    failure::{Failure, OrExit},
    fleet::Fleet,
};

/// Messages sent to measure the round trip.
pub(super) const PINGS: usize = 11;

const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of the measurement.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// The median time of a confirmed message to this process.
    pub(super) median: Duration,
    /// The reply queue of this process.
    pub(super) reply_queue: String,
    /// `None` when the reply queue does not exist.
    pub(super) reply_depth: Option<QueueDepth>,
}

/// Measures the round-trip time and inspects the reply queue.
pub(super) async fn measure(fleet: &Fleet) -> Result<RoundTrip, Failure> {
    let mut queue = QueueSpec::exclusive(&doctor_ping(), &fleet.instance);
    // The key is unique: another doctor may run at the same time.
    let key = RoutingKey::new(queue.name.as_str()).or_exit(exit::SOFTWARE)?;
    queue.bindings = vec![(&key).into()];
    let consuming = fleet.bus.consume(Subscription::new(queue, 1));
    let mut consumer = consuming.await.or_exit(exit::UNAVAILABLE)?;
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let started = Instant::now();
        let timed_out = |_| {
            Failure::unavailable(format!(
                "a message to this process timed out after {PING_TIMEOUT:?}; check the broker"
            ))
        };
        let ping = timeout(PING_TIMEOUT, ping(fleet, &key, &mut consumer));
        ping.await.map_err(timed_out)?.or_exit(exit::UNAVAILABLE)?;
        times.push(started.elapsed());
    }
    times.sort();
    let (reply_queue, reply_depth) = replies(fleet).await?;
    Ok(RoundTrip { median: times[PINGS / 2], reply_queue, reply_depth })
}

async fn ping(fleet: &Fleet, key: &RoutingKey, consumer: &mut Consumer) -> anyhow::Result<()> {
    let envelope = Envelope::raw("Ping", b"{}".to_vec()).transient();
    fleet.bus.publish(Publication::mandatory(key.clone(), envelope)).await?;
    if let Some(delivery) = consumer.next().await {
        delivery.settle(Settlement::Ack).await?;
    }
    Ok(())
}

/// Consumes the reply queue as a requester does, and returns its name and depth.
async fn replies(fleet: &Fleet) -> Result<(String, Option<QueueDepth>), Failure> {
    let name = AgentName::new(CLI).or_exit(exit::SOFTWARE)?;
    let queue = ReplyAddress::new(name, fleet.instance.clone()).queue();
    let names = [queue.name.clone()];
    let consuming = fleet.bus.consume(Subscription::on_receipt(queue, 1));
    let _consumer = consuming.await.or_exit(exit::UNAVAILABLE)?;
    let report = fleet.bus.inspect(&names).await.or_exit(exit::UNAVAILABLE)?;
    let depth = report.queues.first().and_then(QueueReport::depth);
    Ok((names[0].to_string(), depth))
}
