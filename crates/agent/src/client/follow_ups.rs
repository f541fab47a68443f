//! Replies that answer no waiting message: progress, results and approval requests of delegated work.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use rockbot_contracts::{AgentReply, MessageId, ReplyBody};
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::{debug, warn};

/// Maximum number of follow-ups that wait for the reader.
const CAPACITY: usize = 256;
/// Number of follow-ups whose ids are remembered, to drop those that are resent.
const MAX_SEEN: usize = 1024;

/// Receives follow-ups.
#[derive(Debug)]
pub struct FollowUps(mpsc::Receiver<AgentReply>);

impl FollowUps {
    /// Returns the next follow-up, or `None` after the client was closed.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<AgentReply> {
        self.0.recv().await
    }
}

/// Queues follow-ups for their reader.
pub(super) struct FollowUpQueue {
    sender: mpsc::Sender<AgentReply>,
    receiver: Mutex<Option<FollowUps>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    ids: HashSet<MessageId>,
    /// Oldest first.
    order: VecDeque<MessageId>,
}

impl Seen {
    fn insert(&mut self, id: MessageId) {
        if self.ids.insert(id.clone()) {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_SEEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

impl Default for FollowUpQueue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let receiver = Mutex::new(Some(FollowUps(receiver)));
        Self { sender, receiver, seen: Mutex::default() }
    }
}

impl FollowUpQueue {
    /// Returns the reader, once.
    pub(super) fn take(&self) -> Option<FollowUps> {
        self.receiver.lock().take()
    }

    /// Queues a follow-up. Returns any other kind of reply as the error.
    pub(super) fn push(&self, reply: AgentReply) -> Result<(), Box<AgentReply>> {
        let answer = match &reply.body {
            ReplyBody::FollowUp { .. } => Some(reply.in_reply_to.clone()),
            ReplyBody::DelegationProgressed { .. }
            | ReplyBody::DelegationEnded { .. }
            | ReplyBody::ApprovalAsked { .. }
            | ReplyBody::ApprovalClosed { .. } => None,
            _ => return Err(Box::new(reply)),
        };
        let mut seen = self.seen.lock();
        if answer.as_ref().is_some_and(|id| seen.ids.contains(id)) {
            return Ok(());
        }
        match (self.sender.try_send(reply), answer) {
            // Remember it only after it was queued, so that a dropped one is accepted when it is resent.
            (Ok(()), Some(id)) => seen.insert(id),
            (Ok(()), None) => {}
            (Err(TrySendError::Full(_)), _) => warn!("follow-up dropped: queue full"),
            (Err(TrySendError::Closed(_)), _) => debug!("follow-up dropped: reader gone"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId, user::TurnOutcome};

    use super::*;

    fn reply(id: &str, body: ReplyBody) -> AgentReply {
        AgentReply {
            session_id: SessionId::new("s").unwrap(),
            in_reply_to: MessageId::new(id).unwrap(),
            agent: AgentName::new("tester").unwrap(),
            sequence: 0,
            is_final: false,
            body,
        }
    }

    fn answer(text: &str) -> ReplyBody {
        let (text, outcome) = (text.to_owned(), TurnOutcome::Completed);
        ReplyBody::FollowUp { task_ids: Vec::new(), text, outcome, usage: None }
    }

    #[tokio::test]
    async fn resent_follow_up_is_dropped() {
        let queue = FollowUpQueue::default();
        for (id, text) in [("a", "one"), ("a", "one"), ("b", "two")] {
            queue.push(reply(id, answer(text))).unwrap();
        }
        let mut follow_ups = queue.take().unwrap();
        drop(queue);
        let mut ids = Vec::new();
        while let Some(reply) = follow_ups.next().await {
            ids.push(reply.in_reply_to.to_string());
        }
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn reply_to_a_message_is_returned() {
        let reply = reply("a", ReplyBody::Steered {});
        assert_eq!(*FollowUpQueue::default().push(reply.clone()).unwrap_err(), reply);
    }

    #[test]
    fn reader_is_taken_once() {
        let queue = FollowUpQueue::default();
        assert!(queue.take().is_some());
        assert!(queue.take().is_none());
    }

    #[tokio::test]
    async fn follow_up_dropped_by_full_queue_is_accepted_when_resent() {
        let queue = FollowUpQueue::default();
        for number in 0..CAPACITY {
            queue.push(reply(&number.to_string(), answer("early"))).unwrap();
        }
        queue.push(reply("late", answer("late"))).unwrap();
        let mut follow_ups = queue.take().unwrap();
        assert_eq!(follow_ups.next().await.unwrap().in_reply_to.as_str(), "0");
        queue.push(reply("late", answer("late"))).unwrap();
        drop(queue);
        let mut last = None;
        while let Some(reply) = follow_ups.next().await {
            last = Some(reply.in_reply_to);
        }
        assert_eq!(last.unwrap().as_str(), "late");
    }
}
