//! Messages that a queue of this process receives.

use std::time::Duration;

use rockbot_bus::{Bus, ConsumeError, Subscription};
use rockbot_contracts::{Envelope, QueueSpec};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// Messages that are kept; a worker that sends more is not read further.
const MAX_MESSAGES: usize = 10_000;

/// Size of all kept messages, in bytes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

const PREFETCH: u16 = 64;

/// All messages of a queue since its consumption began, in the order of their arrival.
pub(super) struct Messages {
    received: watch::Receiver<Vec<Received>>,
    task: JoinHandle<()>,
}

/// A message with the time of its arrival.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) envelope: Envelope,
    pub(super) at: Instant,
}

impl Received {
    /// Returns whether the message belongs to the call `id`.
    pub(super) fn belongs_to(&self, id: &str) -> bool {
        self.envelope.correlation_id.as_deref() == Some(id)
    }
}

impl Messages {
    /// Starts to consume `queue`.
    pub(super) async fn collect(bus: &dyn Bus, queue: QueueSpec) -> Result<Self, ConsumeError> {
        let mut consumer = bus.consume(Subscription::on_receipt(queue, PREFETCH)).await?;
        let (sender, received) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            let (mut count, mut bytes) = (0, 0);
            while let Some(delivery) = consumer.next().await {
                let envelope = delivery.into_envelope();
                bytes += envelope.body.len();
                count += 1;
                if count > MAX_MESSAGES || bytes > MAX_BYTES {
                    break;
                }
                let at = Instant::now();
                sender.send_modify(|messages| messages.push(Received { envelope, at }));
            }
        });
        Ok(Self { received, task })
    }

    /// Waits until `pick` returns a value for the messages so far, at most `limit`.
    pub(super) async fn wait_for<T>(
        &self,
        limit: Duration,
        mut pick: impl FnMut(&[Received]) -> Option<T>,
    ) -> Option<T> {
        let (mut received, mut found) = (self.received.clone(), None);
        let arrived = received.wait_for(|messages| {
            found = pick(messages);
            found.is_some()
        });
        // The value that was found is the result; a timeout leaves none.
        let _ = timeout(limit, arrived).await;
        found
    }

    /// Returns the messages so far.
    pub(super) fn so_far(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.task.abort();
    }
}
