//! Metric of the depth of a queue.

use std::{sync::Arc, time::Duration};

use metrics::gauge;
use rockbot_contracts::QueueName;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::{port::Bus, report::QueueState};

/// Poll interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// Poll interval after the broker refused an inspection, which it logs as an error.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);

/// Updates `rockbot_bus_queue_messages` of a work queue until dropped.
#[derive(Debug)]
pub struct QueueGauge(JoinHandle<()>);

impl QueueGauge {
    /// Starts to poll a queue and its dead-letter queue every 10 s. The metric is `NaN` for a queue that
    /// does not exist or can't be inspected.
    #[must_use]
    pub fn start(bus: Arc<dyn Bus>, queue: QueueName) -> Self {
        let dead_letters = poll(bus.clone(), queue.dead_letters());
        let own = poll(bus, queue);
        Self(tokio::spawn(async move {
            tokio::join!(dead_letters, own);
        }))
    }
}

async fn poll(bus: Arc<dyn Bus>, queue: QueueName) {
    let name = queue.to_string();
    let queue = [queue];
    loop {
        let inspected = bus.inspect(&queue).await;
        if let Err(error) = &inspected {
            debug!(%error, "queue inspection failed");
        }
        let state = inspected.ok().and_then(|report| Some(report.queues.first()?.state));
        // An outdated depth would be misleading.
        let ready =
            state.and_then(QueueState::depth).map_or(f64::NAN, |depth| f64::from(depth.ready));
        gauge!("rockbot_bus_queue_messages", "queue" => name.clone()).set(ready);
        let refused = state == Some(QueueState::Refused);
        tokio::time::sleep(if refused { REFUSED_INTERVAL } else { INTERVAL }).await;
    }
}

impl Drop for QueueGauge {
    fn drop(&mut self) {
        self.0.abort();
    }
}
