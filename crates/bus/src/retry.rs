//! Retries of pending requests after reconnects.
//!
//! A confirmed request can still be lost: its consumers may have been disconnected as well, and the
//! broker dead-letters a message after too many deliveries. Its reply is lost if the reply queue was
//! deleted. The requester gets no notification, so it sends the request again under the same correlation
//! id.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info};

use crate::{
    pending::{Pending, PendingRequest},
    port::{Bus, Publication, Reconnects},
};

/// Time after the last reconnect until a pending request may count as lost. By then, consumers have
/// reconnected as well and have either replied or received the request again.
const QUIET_PERIOD: Duration = Duration::from_secs(5);

/// Longest wait for a quiet period, from the first reconnect of a series.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// Reconnects after which a pending request is considered lost. The broker allows 30 deliveries, and
/// not every consumer disconnect is visible to the requester.
const RETRY_AFTER_RECONNECTS: u64 = 3;

/// Maximum number of concurrent retries.
const CONCURRENCY: usize = 32;

/// Maximum number of attempts for a request that may not have arrived.
pub(crate) const MAX_ATTEMPTS: u32 = 8;

impl PendingRequest {
    /// Returns whether the request should be sent again after `reconnects`.
    fn should_retry(&self, reconnects: Reconnects) -> bool {
        let abandoned = self.abandoned.as_ref().is_some_and(CancellationToken::is_cancelled);
        let in_time = self.deadline > Instant::now();
        let may_retry = in_time && !abandoned && self.envelope.attempt < MAX_ATTEMPTS;
        let since = reconnects.count.saturating_sub(self.reconnects.count);
        let reply_lost = reconnects.queue_losses > self.reconnects.queue_losses;
        may_retry && (reply_lost || since >= RETRY_AFTER_RECONNECTS)
    }

    /// Records another attempt and returns the publication to send.
    fn next_attempt(&mut self, reconnects: Reconnects) -> Publication {
        self.reconnects = reconnects;
        self.envelope = self.envelope.clone().next_attempt();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let publication =
            Publication::mandatory(self.key.clone(), self.envelope.clone().within(left));
        publication.within(left.min(Publication::DEFAULT_TIMEOUT))
    }
}

/// Retries requests that are still pending after a series of reconnects, until the bus is closed.
pub(crate) async fn retry_after_reconnects(
    bus: Arc<dyn Bus>,
    pending: Arc<Pending>,
    mut reconnects: watch::Receiver<Reconnects>,
) {
    while reconnects.changed().await.is_ok() {
        let latest = Instant::now() + MAX_WAIT;
        let count = loop {
            let count = *reconnects.borrow_and_update();
            let quiet = latest.min(Instant::now() + QUIET_PERIOD);
            match timeout_at(quiet, reconnects.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break count,
            }
        };
        let lost = pending.request_ids(|request| request.should_retry(count));
        let retry = |id| retry(&*bus, &pending, id, count);
        stream::iter(lost).for_each_concurrent(CONCURRENCY, retry).await;
    }
}

/// Sends the request `id` again if it is still pending.
async fn retry(bus: &dyn Bus, pending: &Pending, id: Arc<str>, reconnects: Reconnects) {
    let next = pending.with_request(&id, |request| {
        request.should_retry(reconnects).then(|| {
            let publication = request.next_attempt(reconnects);
            (publication, request.scope.clone(), request.log_span.clone())
        })
    });
    let Some((publication, scope, log_span)) = next.flatten() else { return };
    let attempt = publication.envelope.attempt;
    let retrying = async {
        info!(correlation_id = &*id, attempt, "no reply since reconnect; retrying request");
        pending.stats.count_retry();
        if let Err(error) = bus.publish(publication).await {
            debug!(correlation_id = &*id, %error, "retry failed; waiting for the next reconnect");
            pending.with_request(&id, |request| {
                request.reconnects.count = reconnects.count.saturating_sub(RETRY_AFTER_RECONNECTS);
            });
        }
    };
    scope.run(retrying.instrument(log_span)).await;
}
