//! Subscribing while the connection may be down for a moment, or a lost one still holds the queue.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::port::{Bus, ConsumeError, Consumer, Subscription};

/// Time that a service waits for the broker while it subscribes.
pub const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Starts to consume. While there is no connection, or another one uses the exclusive queue, tries again for up
/// to `limit`: a service that starts during a restart of the broker, or before the broker has noticed the loss
/// of its last connection, then need not be restarted too.
///
/// # Errors
/// When the broker refuses the queue, the bus is closed, the connection stays down, or the queue stays in use.
///
/// # Cancellation
/// Dropping the future stops the attempts.
pub async fn subscribe(
    bus: &dyn Bus,
    subscription: Subscription,
    limit: Duration,
) -> Result<Consumer, ConsumeError> {
    let give_up = Instant::now() + limit;
    let mut is_first = true;
    loop {
        match bus.consume(subscription.clone()).await {
            Err(error @ (ConsumeError::Disconnected { .. } | ConsumeError::InUse { .. }))
                if Instant::now() < give_up =>
            {
                if std::mem::take(&mut is_first) {
                    warn!(queue = %subscription.queue.name, %error, "queue unavailable; retrying");
                }
                sleep(RETRY_DELAY).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::BoxFuture;
    use rockbot_contracts::{QueueName, QueueSpec, topology::tool_invoke};

    use super::*;
    use crate::{
        memory::MemoryBus,
        port::{Publication, PublishError},
        report::BusReport,
    };

    /// A bus that fails a number of attempts to consume.
    struct Unreachable {
        bus: MemoryBus,
        error: ConsumeError,
        failures: AtomicU32,
    }

    impl Unreachable {
        async fn subscribe(error: ConsumeError, failures: u32) -> Result<Consumer, ConsumeError> {
            let bus = Self { bus: MemoryBus::new(), error, failures: failures.into() };
            let queue = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
            subscribe(&bus, queue, Duration::from_secs(60)).await
        }
    }

    impl Bus for Unreachable {
        fn publish(&self, message: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
            self.bus.publish(message)
        }

        fn consume(
            &self,
            subscription: Subscription,
        ) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
            let fails = |left: u32| left.checked_sub(1);
            if self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return Box::pin(std::future::ready(Err(self.error.clone())));
            }
            self.bus.consume(subscription)
        }

        fn inspect<'a>(
            &'a self,
            queues: &'a [QueueName],
        ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
            self.bus.inspect(queues)
        }

        fn is_ready(&self) -> bool {
            self.bus.is_ready()
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            self.bus.close()
        }
    }

    fn disconnected() -> ConsumeError {
        ConsumeError::Disconnected { reason: "connection reset".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn subscription_waits_for_connection_and_queue() {
        Unreachable::subscribe(disconnected(), 100).await.unwrap();
        let in_use = ConsumeError::InUse { queue: "tool.cancel.one".to_owned() };
        Unreachable::subscribe(in_use, 100).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_connection_is_limited() {
        let error = Unreachable::subscribe(disconnected(), u32::MAX).await.unwrap_err();
        assert!(matches!(error, ConsumeError::Disconnected { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_queue_is_not_retried() {
        let (queue, reason) = ("jobs".to_owned(), "no permission".to_owned());
        let refused = ConsumeError::Refused { queue, reason };
        let error = Unreachable::subscribe(refused, 1).await.unwrap_err();
        assert!(matches!(error, ConsumeError::Refused { .. }), "{error}");
    }
}
