//! A message to oneself, and whether one's answers have one reader.

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
    ending::{Exits, Failure},
    fleet::Fleet,
};

/// Messages sent to measure the round trip.
pub(super) const PINGS: usize = 11;

const PING_WITHIN: Duration = Duration::from_secs(5);

/// What this process sees of its own messages.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// The time of a confirmed message to oneself.
    pub(super) median: Duration,
    /// Where answers to this process come in.
    pub(super) reply_queue: String,
    /// `None` when that queue does not exist.
    pub(super) reply_depth: Option<QueueDepth>,
}

/// Sends messages to itself, and looks at the queue for its answers.
pub(super) async fn measure(fleet: &Fleet) -> Result<RoundTrip, Failure> {
    let mut queue = QueueSpec::exclusive(&doctor_ping(), &fleet.instance);
    // A key of its own: another doctor may be at work.
    let key = RoutingKey::new(queue.name.as_str()).exits(exit::SOFTWARE)?;
    queue.bindings = vec![(&key).into()];
    let consuming = fleet.bus.consume(Subscription::new(queue, 1));
    let mut consumer = consuming.await.exits(exit::UNAVAILABLE)?;
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        let late = |_| Failure::unavailable(format!("no round trip within {PING_WITHIN:?}"));
        let ping = timeout(PING_WITHIN, ping(fleet, &key, &mut consumer));
        ping.await.map_err(late)?.exits(exit::UNAVAILABLE)?;
        times.push(began.elapsed());
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

/// Subscribes to its answers as an asker does, and has the broker count who reads them.
async fn replies(fleet: &Fleet) -> Result<(String, Option<QueueDepth>), Failure> {
    let name = AgentName::new(CLI).exits(exit::SOFTWARE)?;
    let queue = ReplyAddress::new(name, fleet.instance.clone()).queue();
    let names = [queue.name.clone()];
    let reading = fleet.bus.consume(Subscription::on_receipt(queue, 1));
    let _reader = reading.await.exits(exit::UNAVAILABLE)?;
    let report = fleet.bus.inspect(&names).await.exits(exit::UNAVAILABLE)?;
    let depth = report.queues.first().and_then(QueueReport::depth);
    Ok((names[0].to_string(), depth))
}
