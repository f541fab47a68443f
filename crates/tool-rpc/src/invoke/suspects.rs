//! Calls that may be what kills their handlers: each is moved to a queue where it runs alone.
//!
//! When a process is lost, the broker counts a delivery for everything that was in its hands, and
//! gives up what was delivered too often. So whatever was there when two processes were lost moves
//! to the queue for suspects, of which a handler holds one at a time: a call that kills its handler
//! again is then given up alone, and the innocent ones run.

use std::{future::Future, time::Duration};

use rockbot_bus::{Bus, Delivery, Publication, PublishError};
use rockbot_contracts::{
    AgentName, Envelope, MessageId, envelope::TimeBudget, topology::quarantine_of,
};
use tokio::sync::watch;

/// From which delivery on a request is a suspect.
const SUSPECT_FROM: u32 = 3;

/// How long a move may take; meanwhile nothing starts here.
const MOVE_WITHIN: Duration = Duration::from_secs(5);

/// By which of a handler's two queues a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// That of its key, where askers send.
    Requests,
    /// The one beside it, where handlers send.
    Suspects,
}

/// A request in hand.
#[derive(Clone, Copy)]
pub(super) struct Taken<'a> {
    pub(super) delivery: &'a Delivery,
    pub(super) queue: Queue,
}

impl<'a> Taken<'a> {
    pub(super) fn envelope(self) -> &'a Envelope {
        self.delivery.envelope()
    }

    /// Whether somebody may have had the call before.
    pub(super) fn came_before(self) -> bool {
        let suspect = self.queue == Queue::Suspects;
        suspect || self.delivery.is_redelivered() || self.envelope().attempt > 1
    }

    /// Whether it is to be moved before it runs.
    pub(super) fn is_suspect(self) -> bool {
        self.queue == Queue::Requests && self.delivery.attempt() >= SUSPECT_FROM
    }
}

/// The moves that are under way in a process. Nothing else starts before they are done: it may end
/// this process, and that would count against those that are still in hand.
#[derive(Debug, Default)]
pub(super) struct Moves(watch::Sender<usize>);

/// A move under way, until dropped.
struct Move<'a>(&'a Moves);

impl Moves {
    /// Sends the request of `asker` to the queue for suspects. After this, settle it.
    ///
    /// # Errors
    /// When it may not be there.
    pub(super) async fn carry_out(
        &self,
        bus: &dyn Bus,
        taken: Taken<'_>,
        asker: &AgentName,
    ) -> Result<(), PublishError> {
        self.0.send_modify(|moves| *moves += 1);
        let _under_way = Move(self);
        let key = quarantine_of(taken.delivery.routing_key());
        let copy = copy_of(taken.envelope(), asker);
        bus.publish(Publication::mandatory(key, copy).within(MOVE_WITHIN)).await
    }

    /// Whether one is under way.
    pub(super) fn any(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Returns when none is under way.
    pub(super) fn done(&self) -> impl Future<Output = ()> + Send {
        let mut moves = self.0.subscribe();
        async move {
            let _ = moves.wait_for(|moves| *moves == 0).await;
        }
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|moves| *moves -= 1);
    }
}

/// The same call as a message of our own: with the time that is left, and in its asker's name, whom
/// the broker vouches for no more.
fn copy_of(request: &Envelope, asker: &AgentName) -> Envelope {
    let mut copy = request.clone().with_source(asker.as_str());
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
        AgentName::new("assistant").expect("a name")
    }

    #[test]
    fn a_copy_differs_in_its_id_and_says_who_asks() {
        let mut request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec())
            .with_correlation_id("the-call")
            .reply_to(RoutingKey::new("tool.result.assistant.1").expect("a key"));
        request.attempt = 3;
        request.mcp_server = Some("files".into());
        request.trace = TraceContext { parent: Some("00-1-2-01".into()), state: None };
        let copy = copy_of(&request, &assistant());
        assert_ne!(copy.message_id, request.message_id);
        assert_eq!(copy.source.as_deref(), Some("assistant"));
        let (message_id, source) = (request.message_id.clone(), request.source.clone());
        assert_eq!(Envelope { message_id, source, ..copy }, request);
    }

    #[test]
    fn a_copy_has_the_time_that_is_left_and_no_more() {
        let minute = Duration::from_secs(60);
        let now = unix_ms(SystemTime::now());
        for (timeout, deadline_unix_ms, left) in [
            (minute, now + 10_000, Duration::from_secs(10)),
            // Of an asker whose clock is ahead, and of one that names no moment.
            (minute, now + 600_000, minute),
            (minute, u64::MAX, minute),
            (Duration::from_millis(u64::MAX), now + 10_000, Duration::from_secs(10)),
            (minute, 1, Duration::ZERO),
        ] {
            let mut request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
            request.budget = Some(TimeBudget { timeout, deadline_unix_ms });
            let budget = copy_of(&request, &assistant()).budget.expect("a budget");
            let slack = Duration::from_secs(5);
            assert!(budget.timeout <= left && budget.timeout + slack > left, "{budget:?}");
            let latest = deadline_unix_ms.max(unix_ms(SystemTime::now()));
            assert!(budget.deadline_unix_ms <= latest, "{budget:?}");
            let by_length = now + 5_000 + u64::try_from(left.as_millis()).expect("short");
            assert!(budget.deadline_unix_ms <= by_length, "{budget:?}");
        }
        let endless = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
        assert_eq!(copy_of(&endless, &assistant()).budget, None);
    }
}
