//! How full queues are, as a metric.

use std::{sync::Arc, time::Duration};

use metrics::gauge;
use rockbot_contracts::QueueName;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::{port::Bus, report::QueueState};

/// How often the bus is asked.
const EVERY: Duration = Duration::from_secs(10);

/// Poll interval after the broker refused an inspection, which it logs as an error.
const WHEN_REFUSED: Duration = Duration::from_secs(600);

/// Keeps `rockbot_bus_queue_messages` of a work queue up to date, until dropped.
#[derive(Debug)]
pub struct QueueGauge(JoinHandle<()>);

impl QueueGauge {
    /// Looks every 10 s at a queue and at that of its dead letters. One that isn't there, or
    /// that can't be looked at, is not a number.
    #[must_use]
    pub fn start(bus: Arc<dyn Bus>, queue: QueueName) -> Self {
        let letters = keep_up_to_date(bus.clone(), queue.dead_letters());
        let own = keep_up_to_date(bus, queue);
        Self(tokio::spawn(async move {
            tokio::join!(letters, own);
        }))
    }
}

async fn keep_up_to_date(bus: Arc<dyn Bus>, queue: QueueName) {
    let name = queue.to_string();
    let queue = [queue];
    loop {
        let seen = bus.inspect(&queue).await;
        if let Err(error) = &seen {
            debug!(%error, "queue inspection failed");
        }
        let state = seen.ok().and_then(|report| Some(report.queues.first()?.state));
        // What was true a while ago is not told.
        let ready =
            state.and_then(QueueState::depth).map_or(f64::NAN, |depth| f64::from(depth.ready));
        gauge!("rockbot_bus_queue_messages", "queue" => name.clone()).set(ready);
        let pause = if state == Some(QueueState::Refused) { WHEN_REFUSED } else { EVERY };
        tokio::time::sleep(pause).await;
    }
}

impl Drop for QueueGauge {
    fn drop(&mut self) {
        self.0.abort();
    }
}
