//! A question to oneself, and whether its answers have one reader.

use std::time::{Duration, Instant};

use anyhow::Context;
use rockbot_bus::{
    Bus, Consumer, Publication, Request, Requester, Settlement, Subscription, report::QueueDepth,
};
use rockbot_contracts::{
    AgentName, Envelope, MessageId, QueueSpec, RoutingKey, topology::ReplyAddress,
};
use rockbot_service::exit;
use tokio::time::timeout;

use crate::{
    ending::{Exits, Failure},
    fleet::Fleet,
};

/// Questions asked to measure the round trip.
pub(super) const PINGS: usize = 11;

const PING_WITHIN: Duration = Duration::from_secs(5);

/// How answers come back to this process.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// The time of a confirmed question and its confirmed answer.
    pub(super) median: Duration,
    /// Where the answers came in.
    pub(super) reply_queue: String,
    /// `None` when that queue does not exist.
    pub(super) reply_depth: Option<QueueDepth>,
}

/// Asks itself, and looks at the queue for its answers.
pub(super) async fn measure(fleet: &Fleet) -> Result<RoundTrip, Failure> {
    let doctor = AgentName::new("doctor").exits(exit::SOFTWARE)?;
    let address = ReplyAddress::new(doctor, fleet.instance.clone());
    let reply_queue = address.queue().name;
    let requester = Requester::new(fleet.bus.clone(), address);
    let topic = RoutingKey::new("doctor.ping").exits(exit::SOFTWARE)?;
    let mut queue = QueueSpec::exclusive(&topic, &fleet.instance);
    // A key of its own: another doctor may be at work.
    let key = RoutingKey::new(queue.name.as_str()).exits(exit::SOFTWARE)?;
    queue.bindings = vec![(&key).into()];
    let consuming = fleet.bus.consume(Subscription::new(queue, 1));
    let mut consumer = consuming.await.exits(exit::UNAVAILABLE)?;
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        let ping = async {
            tokio::try_join!(ask(&requester, &key), answer(fleet.bus.as_ref(), &mut consumer))
        };
        let late = |_| Failure::unavailable(format!("no round trip within {PING_WITHIN:?}"));
        timeout(PING_WITHIN, ping).await.map_err(late)?.exits(exit::UNAVAILABLE)?;
        times.push(began.elapsed());
    }
    times.sort();
    let names = [reply_queue];
    let report = fleet.bus.inspect(&names).await.exits(exit::UNAVAILABLE)?;
    let reply_depth = report.queues.first().and_then(|queue| queue.depth);
    Ok(RoundTrip { median: times[PINGS / 2], reply_queue: names[0].to_string(), reply_depth })
}

async fn ask(requester: &Requester, key: &RoutingKey) -> anyhow::Result<()> {
    let envelope = Envelope::raw("Ping", b"{}".to_vec()).transient();
    let envelope = envelope.correlated(MessageId::generate().as_str());
    let request = Request {
        key: key.clone(),
        envelope,
        timeout: PING_WITHIN,
        grace: Duration::ZERO,
        on_interim: None,
        ask_again: false,
    };
    requester.ask(request).await?;
    Ok(())
}

async fn answer(bus: &dyn Bus, consumer: &mut Consumer) -> anyhow::Result<()> {
    let question = consumer.next().await.context("the bus was closed")?;
    let key = question.envelope().reply_to.clone().context("a ping without a reply-to")?;
    let id = question.envelope().correlation_id.as_deref().unwrap_or_default();
    let envelope = Envelope::raw("Pong", b"{}".to_vec()).transient().correlated(id);
    bus.publish(Publication::mandatory(key, envelope)).await?;
    question.settle(Settlement::Ack).await?;
    Ok(())
}
