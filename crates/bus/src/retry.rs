//! Asking again what is still open after a lost connection.
//!
//! A question that the bus confirmed can still be lost: those who had it in hand may have lost their
//! connections too, and a bus gives up what it delivered too often. Nobody tells the asker.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{Envelope, RoutingKey, trace};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, info};

use crate::{
    pending::Pending,
    port::{Bus, Publication},
    request::MAX_ATTEMPTS,
};

/// How long after the last loss an open question may count as lost. Those who work on questions have
/// their connections back by then, and what they had in hand is answered, or under way.
const QUIET: Duration = Duration::from_secs(5);

/// How long a run of losses is waited out at most, from when answers could first be had again.
const LONGEST_RUN: Duration = Duration::from_secs(15);

/// How many losses a question was open through that counts as lost: so often the queue for answers
/// was out of reach and came back. A bus gives up after five deliveries; not all of those losses are
/// seen here.
const LOSSES: u64 = 3;

/// Questions that are asked again at once.
const AT_ONCE: usize = 32;

/// A question that the bus has, and what it takes to ask it once more.
pub(crate) struct PendingRequest {
    pub(crate) key: RoutingKey,
    pub(crate) envelope: Envelope,
    pub(crate) deadline: Instant,
    /// Cancelled when nobody wants the answer any more.
    pub(crate) abandoned: Option<CancellationToken>,
    /// How many losses there had been when it was sent.
    pub(crate) losses: u64,
    /// The requester's place in its trace.
    pub(crate) scope: trace::Scope,
    /// The requester's span in log lines.
    pub(crate) log_span: Span,
}

impl PendingRequest {
    /// Whether it may have been lost by now, after so many losses, and is to be asked once more.
    fn may_be_lost(&self, losses: u64) -> bool {
        let given_up = self.abandoned.as_ref().is_some_and(CancellationToken::is_cancelled);
        let in_time = self.deadline > Instant::now();
        let wanted = in_time && !given_up && self.envelope.attempt < MAX_ATTEMPTS;
        wanted && losses.saturating_sub(self.losses) >= LOSSES
    }

    /// Counts it as asked once more, after so many losses, and says where and what to send.
    fn once_more(&mut self, losses: u64) -> Publication {
        self.losses = losses;
        self.envelope = self.envelope.clone().next_attempt();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let publication =
            Publication::mandatory(self.key.clone(), self.envelope.clone().within(left));
        let within = left.min(Publication::DEFAULT_TIMEOUT);
        publication.within(within)
    }
}

/// Asks again what is still open some time after a run of losses; until the bus is closed.
pub(crate) async fn retry_after_reconnects(
    bus: Arc<dyn Bus>,
    pending: Arc<Pending>,
    mut reconnects: watch::Receiver<u64>,
) {
    while reconnects.changed().await.is_ok() {
        let latest = Instant::now() + LONGEST_RUN;
        let losses = loop {
            let losses = *reconnects.borrow_and_update();
            let quiet = latest.min(Instant::now() + QUIET);
            match timeout_at(quiet, reconnects.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break losses,
            }
        };
        let open = pending.open_questions(|question| question.may_be_lost(losses));
        let ask = |id| retry(&*bus, &pending, id, losses);
        stream::iter(open).for_each_concurrent(AT_ONCE, ask).await;
    }
}

/// Asks the question `id` again if that is still to be done.
async fn retry(bus: &dyn Bus, pending: &Pending, id: Arc<str>, losses: u64) {
    let next = pending.with_open_question(&id, |question| {
        question.may_be_lost(losses).then(|| {
            (question.once_more(losses), question.scope.clone(), question.log_span.clone())
        })
    });
    let Some((publication, scope, log_span)) = next.flatten() else { return };
    let asked = publication.envelope.attempt;
    let asking = async {
        info!(
            correlation_id = &*id,
            asked, "no answer since the connection was lost; asking again under the same id"
        );
        pending.stats.count_retry();
        if let Err(error) = bus.publish(publication).await {
            debug!(correlation_id = &*id, %error,
                "asking again failed; the next time is after the next loss");
            pending.with_open_question(&id, |question| {
                question.losses = losses.saturating_sub(LOSSES);
            });
        }
    };
    scope.run(asking.instrument(log_span)).await;
}
