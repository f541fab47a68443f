//! Quarantine of requests that may crash handlers.
//!
//! When a process is lost, the broker counts a delivery of every request that it held, and dead-letters
//! a request after too many deliveries. A request that two lost processes held is therefore moved to the
//! quarantine queue, of which a handler holds one request at a time. After three more lost processes the
//! request is dead-lettered, alone, and the harmless ones run. A delivery whose handler is alive does not
//! count; see [`holders`](super::holders).

use std::{future::Future, time::Duration};

use rockbot_bus::{Bus, Delivery, Publication, PublishError};
use rockbot_contracts::{
    AgentName, Envelope, MessageId, envelope::TimeBudget, topology::quarantine_of,
};
use tokio::sync::watch;

/// Number of deliveries that may have crashed their handlers from which on a request is quarantined.
const MAX_CRASHES: u32 = 2;

/// Number of deliveries in quarantine that may have crashed their handlers from which on a request is
/// dead-lettered. The broker allows more deliveries, since its own crash costs one for each handler.
const MAX_QUARANTINE_CRASHES: u32 = 3;

/// Maximum time for a transfer; no call starts in this process meanwhile.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);

/// Queue that a request was consumed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboundQueue {
    /// The work queue, which callers publish to.
    Work,
    /// The quarantine queue, which handlers publish to.
    Quarantine,
    /// A queue of this process alone, which ends with its connection and then redelivers nothing.
    Own,
}

/// A consumed request that is not settled yet.
#[derive(Clone, Copy)]
pub(super) struct Inbound<'a> {
    pub(super) delivery: &'a Delivery,
    pub(super) queue: InboundQueue,
    /// Set when another delivery of the call was running in this process.
    pub(super) saw_running: bool,
}

impl<'a> Inbound<'a> {
    pub(super) fn envelope(self) -> &'a Envelope {
        self.delivery.envelope()
    }

    /// Returns whether the broker delivered the request before.
    pub(super) fn was_delivered(self) -> bool {
        self.queue == InboundQueue::Quarantine || self.delivery.is_redelivered()
    }

    /// Returns whether the request may have been delivered before, according to the broker or its sender.
    pub(super) fn maybe_redelivered(self) -> bool {
        self.saw_running || self.was_delivered() || self.envelope().attempt > 1
    }

    /// Returns whether this is another delivery of the same message. If not, the caller may have sent the
    /// request again, because it has no reply.
    pub(super) fn is_only_redelivered(self) -> bool {
        self.delivery.is_redelivered() && self.envelope().attempt <= 1 && !self.saw_running
    }

    /// Returns whether the bus redelivers the request, because the channel of this delivery was lost.
    pub(super) fn is_lost(self) -> bool {
        self.queue != InboundQueue::Own && !self.delivery.is_open()
    }

    /// Returns whether an earlier delivery from the same queue may have crashed its handler.
    pub(super) fn may_have_crashed(self) -> bool {
        self.queue != InboundQueue::Own && self.delivery.is_redelivered()
    }

    /// Returns the number of deliveries that may have crashed their handlers from which on the request does
    /// not run.
    pub(super) fn max_crashes(self) -> u32 {
        match self.queue {
            InboundQueue::Quarantine => MAX_QUARANTINE_CRASHES,
            InboundQueue::Work | InboundQueue::Own => MAX_CRASHES,
        }
    }
}

/// Transfers to the quarantine queue that are in progress. No call starts before they are done: it may
/// crash this process, which would count as a delivery of the requests that are not moved yet.
#[derive(Debug, Default)]
pub(super) struct QuarantineTransfers(watch::Sender<usize>);

/// A transfer in progress, until dropped.
struct TransferGuard<'a>(&'a QuarantineTransfers);

impl QuarantineTransfers {
    /// Publishes the request of `caller` to the quarantine queue. On success, the request is to be
    /// acknowledged.
    ///
    /// # Errors
    /// When the quarantine queue may not have the request.
    pub(super) async fn transfer(
        &self,
        bus: &dyn Bus,
        inbound: Inbound<'_>,
        caller: &AgentName,
    ) -> Result<(), PublishError> {
        self.0.send_modify(|transfers| *transfers += 1);
        let _in_progress = TransferGuard(self);
        let key = quarantine_of(inbound.delivery.routing_key());
        let copy = copy_request(inbound.envelope(), caller);
        bus.publish(Publication::mandatory(key, copy).within(TRANSFER_TIMEOUT)).await
    }

    /// Returns whether a transfer is in progress.
    pub(super) fn in_progress(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until no transfer is in progress.
    pub(super) fn wait_idle(&self) -> impl Future<Output = ()> + Send {
        let mut transfers = self.0.subscribe();
        async move {
            let _ = transfers.wait_for(|transfers| *transfers == 0).await;
        }
    }
}

impl Drop for TransferGuard<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|transfers| *transfers -= 1);
    }
}

/// Returns the request as a message of this process, with the remaining time and with its caller as
/// the source, since the broker's validated user is now the handler's.
fn copy_request(request: &Envelope, caller: &AgentName) -> Envelope {
    let mut copy = request.clone().with_source(caller.as_str());
    copy.message_id = MessageId::generate();
    copy.budget = request.remaining().map(TimeBudget::starting_now);
    copy
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rockbot_contracts::{RoutingKey, TraceContext, envelope::unix_ms};

    use super::*;

    fn assistant() -> AgentName {
        AgentName::new("assistant").expect("a valid name")
    }

    #[test]
    fn copy_has_new_id_and_caller_as_source() {
        let mut request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec())
            .with_correlation_id("the-call")
            .reply_to(RoutingKey::new("tool.result.assistant.1").expect("a valid key"));
        request.attempt = 3;
        request.mcp_server = Some("files".into());
        request.trace = TraceContext { parent: Some("00-1-2-01".into()), state: None };
        let copy = copy_request(&request, &assistant());
        assert_ne!(copy.message_id, request.message_id);
        assert_eq!(copy.source.as_deref(), Some("assistant"));
        let (message_id, source) = (request.message_id.clone(), request.source.clone());
        assert_eq!(Envelope { message_id, source, ..copy }, request);
    }

    #[test]
    fn copy_keeps_only_remaining_time() {
        let minute = Duration::from_secs(60);
        let now = unix_ms(SystemTime::now());
        for (timeout, deadline_unix_ms, left) in [
            (minute, now + 10_000, Duration::from_secs(10)),
            // A caller whose clock is ahead, and one that sets no deadline.
            (minute, now + 600_000, minute),
            (minute, u64::MAX, minute),
            (Duration::from_millis(u64::MAX), now + 10_000, Duration::from_secs(10)),
            (minute, 1, Duration::ZERO),
        ] {
            let mut request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
            request.budget = Some(TimeBudget { timeout, deadline_unix_ms });
            let budget = copy_request(&request, &assistant()).budget.expect("a budget");
            let slack = Duration::from_secs(5);
            assert!(budget.timeout <= left && budget.timeout + slack > left, "{budget:?}");
            let latest = deadline_unix_ms.max(unix_ms(SystemTime::now()));
            assert!(budget.deadline_unix_ms <= latest, "{budget:?}");
            let by_budget = now + 5_000 + u64::try_from(left.as_millis()).expect("short");
            assert!(budget.deadline_unix_ms <= by_budget, "{budget:?}");
        }
        let unbounded = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
        assert_eq!(copy_request(&unbounded, &assistant()).budget, None);
    }
}
