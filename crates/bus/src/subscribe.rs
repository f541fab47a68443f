//! Subscribing while the connection may be down for a moment.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::port::{Bus, ConsumeError, Consumer, Subscription};

/// Time that a service waits for the broker while it subscribes.
pub const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Starts to consume. While there is no connection, tries again for up to `limit`: a service that
/// starts during a restart of the broker then need not be restarted too.
///
/// # Errors
/// When the broker refuses the queue, the bus is closed, or the connection stays down.
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
            Err(ConsumeError::Disconnected { reason }) if Instant::now() < give_up => {
                if std::mem::take(&mut is_first) {
                    warn!(queue = %subscription.queue.name, reason, "broker unavailable; retrying");
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

    /// A bus without a connection for a number of attempts to consume.
    struct Unreachable {
        bus: MemoryBus,
        failures: AtomicU32,
    }

    impl Unreachable {
        async fn subscribe(failures: u32) -> Result<Consumer, ConsumeError> {
            let bus = Self { bus: MemoryBus::new(), failures: failures.into() };
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
                let reason = "connection reset".to_owned();
                return Box::pin(std::future::ready(Err(ConsumeError::Disconnected { reason })));
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

    #[tokio::test(start_paused = true)]
    async fn subscription_waits_for_the_connection() {
        Unreachable::subscribe(100).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_connection_is_limited() {
        let error = Unreachable::subscribe(u32::MAX).await.unwrap_err();
        assert!(matches!(error, ConsumeError::Disconnected { .. }), "{error}");
    }
}
