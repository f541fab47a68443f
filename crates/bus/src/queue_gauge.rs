//! How full queues are, as a metric.

use std::{sync::Arc, time::Duration};

use metrics::gauge;
use rockbot_contracts::QueueName;
use tokio::{task::JoinHandle, time::MissedTickBehavior};
use tracing::debug;

use crate::{port::Bus, report::QueueReport};

/// How often the bus is asked.
const EVERY: Duration = Duration::from_secs(10);

/// Keeps `rockbot_bus_queue_messages` of a work queue up to date, until dropped.
#[derive(Debug)]
pub struct QueueGauge(JoinHandle<()>);

impl QueueGauge {
    /// Looks every 10 s at a queue and at that of its dead letters. One that isn't there, or
    /// that can't be looked at, is not a number.
    #[must_use]
    pub fn start(bus: Arc<dyn Bus>, queue: QueueName) -> Self {
        let queues = [queue.dead_letters(), queue];
        Self(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let seen = bus.inspect(&queues).await;
                if let Err(error) = &seen {
                    debug!(%error, "can't look at the queues");
                }
                let seen = seen.map(|report| report.queues).unwrap_or_default();
                for queue in &queues {
                    let report = seen.iter().find(|report| report.name == queue.as_str());
                    let depth = report.and_then(QueueReport::depth);
                    // What was true a while ago is not told.
                    let ready = depth.map_or(f64::NAN, |depth| f64::from(depth.ready));
                    gauge!("rockbot_bus_queue_messages", "queue" => queue.to_string()).set(ready);
                }
            }
        }))
    }
}

impl Drop for QueueGauge {
    fn drop(&mut self) {
        self.0.abort();
    }
}
