//! The replies of one turn, for any number of followers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rockbot_agent::{ReplyError, SendError};
use rockbot_contracts::{AgentReply, ReplyBody};
use tokio::{sync::Notify, time::timeout};

/// Maximum number of kept replies of a turn.
const MAX_REPLIES: usize = 4096;
/// Maximum size of the kept replies of a turn, in bytes of their texts. The last reply is always kept.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A turn that several requests may follow.
#[derive(Debug, Default)]
pub(super) struct SharedTurn {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Arc<AgentReply>>,
    /// Number of replies that were dropped before the kept ones.
    dropped: u64,
    bytes: usize,
    sent: Option<Result<(), SendError>>,
    end: Option<Result<(), ReplyError>>,
    followers: usize,
    /// Time for which the turn outlives its last follower.
    linger: Duration,
}

impl SharedTurn {
    /// Records whether the message was sent.
    pub(super) fn sent(&self, outcome: Result<(), SendError>) {
        self.state.lock().sent = Some(outcome);
        self.changed.notify_waiters();
    }

    /// Adds a reply.
    pub(super) fn push(&self, reply: AgentReply) {
        self.state.lock().push(reply);
        self.changed.notify_waiters();
    }

    /// Adds the last reply.
    pub(super) fn push_last(&self, reply: AgentReply) {
        let mut state = self.state.lock();
        state.push(reply);
        state.end = Some(Ok(()));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the turn for its followers, unless it has ended.
    pub(super) fn end(&self, outcome: Result<(), ReplyError>) {
        let mut state = self.state.lock();
        state.sent.get_or_insert(Ok(()));
        state.end.get_or_insert(outcome);
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn is_followed(&self) -> bool {
        self.state.lock().followers > 0
    }

    /// Waits until the turn had no follower for its time to linger.
    pub(super) async fn abandoned(&self) {
        loop {
            self.wait_for(|state| (state.followers == 0).then_some(())).await;
            let linger = self.state.lock().linger;
            let followed = self.wait_for(|state| (state.followers > 0).then_some(()));
            if timeout(linger, followed).await.is_err() {
                return;
            }
        }
    }

    /// Waits until `find` finds something in the state.
    async fn wait_for<T>(&self, mut find: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the state is read, so that no change is missed.
            changed.as_mut().enable();
            if let Some(found) = find(&self.state.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

impl State {
    fn push(&mut self, reply: AgentReply) {
        self.bytes += text_bytes(&reply.body);
        self.replies.push_back(Arc::new(reply));
        while self.replies.len() > MAX_REPLIES || (self.bytes > MAX_BYTES && self.replies.len() > 1)
        {
            let Some(oldest) = self.replies.pop_front() else { break };
            self.bytes -= text_bytes(&oldest.body);
            self.dropped += 1;
        }
    }
}

fn text_bytes(body: &ReplyBody) -> usize {
    match body {
        ReplyBody::TextDelta { text }
        | ReplyBody::ToolProgressed { text, .. }
        | ReplyBody::Answer { text, .. } => text.len(),
        ReplyBody::ToolStarted { arguments, .. } | ReplyBody::ApprovalAsked { arguments, .. } => {
            arguments.len()
        }
        _ => 0,
    }
}

/// A reply that a follower receives, or the reason why none follows.
#[derive(Debug, Clone)]
pub(crate) enum Followed {
    /// A reply.
    Reply(Arc<AgentReply>),
    /// Replies were dropped, because the follower read too slowly.
    Lost(u64),
    /// No final reply will come.
    Failed(ReplyError),
}

/// Follows a turn from its first reply on. Dropping the last follower abandons the turn.
#[derive(Debug)]
pub(crate) struct Follower {
    turn: Arc<SharedTurn>,
    /// Number of the next reply.
    next: u64,
    is_ended: bool,
}

impl Follower {
    pub(super) fn new(turn: Arc<SharedTurn>, linger: Duration) -> Self {
        let mut state = turn.state.lock();
        state.followers += 1;
        state.linger = state.linger.max(linger);
        drop(state);
        turn.changed.notify_waiters();
        Self { turn, next: 0, is_ended: false }
    }

    /// Waits until the message was sent.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn sent(&self) -> Result<(), SendError> {
        self.turn.wait_for(|state| state.sent.clone()).await
    }

    /// Returns what comes next, or `None` after the final reply or a failure.
    ///
    /// # Cancellation
    /// Cancel-safe: nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<Followed> {
        if self.is_ended {
            return None;
        }
        let next = self.next;
        let found = self.turn.wait_for(|state| {
            if next < state.dropped {
                return Some(Some(Followed::Lost(state.dropped - next)));
            }
            let at = usize::try_from(next - state.dropped).unwrap_or(usize::MAX);
            if let Some(reply) = state.replies.get(at) {
                return Some(Some(Followed::Reply(reply.clone())));
            }
            let end = state.end.as_ref()?;
            Some(end.as_ref().err().cloned().map(Followed::Failed))
        });
        let found = found.await;
        match &found {
            Some(Followed::Reply(_)) => self.next += 1,
            Some(Followed::Lost(lost)) => self.next += lost,
            Some(Followed::Failed(_)) | None => self.is_ended = true,
        }
        found
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.turn.state.lock().followers -= 1;
        self.turn.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::user::TurnOutcome;

    use super::*;
    use crate::test_replies::{answer, delta};

    fn text(followed: Option<Followed>) -> String {
        match followed {
            Some(Followed::Reply(reply)) => match &reply.body {
                ReplyBody::TextDelta { text } | ReplyBody::Answer { text, .. } => text.clone(),
                body => panic!("{body:?}"),
            },
            followed => panic!("{followed:?}"),
        }
    }

    #[tokio::test]
    async fn late_follower_receives_all_replies() {
        let turn = Arc::new(SharedTurn::default());
        let mut first = Follower::new(turn.clone(), Duration::ZERO);
        turn.sent(Ok(()));
        turn.push(delta("a"));
        assert_eq!(text(first.next().await), "a");
        let mut second = Follower::new(turn.clone(), Duration::ZERO);
        turn.push_last(answer("done", TurnOutcome::Completed));
        for follower in [&mut second, &mut first] {
            follower.sent().await.unwrap();
        }
        assert_eq!(text(second.next().await), "a");
        for follower in [&mut second, &mut first] {
            assert_eq!(text(follower.next().await), "done");
            assert!(follower.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn kept_replies_are_bounded_and_losses_are_reported() {
        let turn = Arc::new(SharedTurn::default());
        let mut follower = Follower::new(turn.clone(), Duration::ZERO);
        let large = "x".repeat(MAX_BYTES / 4);
        for _ in 0..10 {
            turn.push(delta(&large));
        }
        let lost = match follower.next().await {
            Some(Followed::Lost(lost)) => lost,
            other => panic!("{other:?}"),
        };
        assert_eq!(lost, 6);
        for _ in 0..MAX_REPLIES + 5 {
            turn.push(delta("y"));
        }
        assert!(turn.state.lock().replies.len() <= MAX_REPLIES);
        assert!(turn.state.lock().bytes <= MAX_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn turn_is_abandoned_after_its_time_to_linger() {
        let turn = Arc::new(SharedTurn::default());
        let linger = Duration::from_secs(10);
        let follower = Follower::new(turn.clone(), linger);
        timeout(linger * 2, turn.abandoned()).await.expect_err("it has a follower");
        drop(follower);
        timeout(linger / 2, turn.abandoned()).await.expect_err("another may come");
        timeout(linger * 2, turn.abandoned()).await.expect("nothing follows it");
    }

    #[tokio::test]
    async fn failure_ends_a_follower() {
        let turn = Arc::new(SharedTurn::default());
        let mut follower = Follower::new(turn.clone(), Duration::ZERO);
        turn.end(Err(ReplyError::Closed));
        assert!(matches!(follower.next().await, Some(Followed::Failed(ReplyError::Closed))));
        assert!(follower.next().await.is_none());
    }
}
