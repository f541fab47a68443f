//! Results of scheduled tasks that their user has not seen yet.

use std::{collections::VecDeque, sync::Arc};

use rockbot_contracts::{AgentName, MessageId, SessionId, user::TurnOutcome};
use rockbot_store::{
    DocumentError, DocumentStore, Expected, PutOutcome, Store, StoreError, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{
    task::{TaskName, millis},
    task_store::EditError,
};

/// First segment of the key, `schedule-notices/<agent>`.
const SPACE: &str = "schedule-notices";
/// Maximum number of results that wait.
const MAX_PENDING: usize = 20;
/// Number of results remembered as shown, so that a process that records one again does not show it twice.
const MAX_SHOWN: usize = 64;
/// Longest text of a result, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// Attempts to change the results while others change them.
const ATTEMPTS: usize = 8;

/// The results of an agent: one document, changed only by a write that names its version.
pub(super) struct NoticeStore {
    documents: DocumentStore<Notices>,
    agent: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Notices {
    /// Oldest first.
    pending: VecDeque<Notice>,
    shown: VecDeque<MessageId>,
}

/// The result of a fire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notice {
    /// The message of the fire.
    pub(super) message: MessageId,
    pub(super) task: TaskName,
    #[serde(with = "millis")]
    pub(super) fire: Timestamp,
    /// The conversation of the turn; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<SessionId>,
    /// The broker user of the task, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    pub(super) outcome: TurnOutcome,
    pub(super) text: String,
    /// The turn that shows it. It may still have to record that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<ShowingTurn>,
}

/// A turn that shows results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShowingTurn {
    pub(super) session: SessionId,
    /// The message of the turn.
    pub(super) message: MessageId,
}

impl NoticeStore {
    pub(super) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        Self { documents: DocumentStore::new(store, [SPACE]), agent: agent.to_string() }
    }

    /// Adds a result, unless it was added before.
    pub(super) async fn add(&self, mut notice: Notice) -> Result<(), EditError> {
        truncate(&mut notice.text, MAX_TEXT_BYTES);
        let add = |notices: &mut Notices| {
            let is_known = notices.shown.contains(&notice.message)
                || notices.pending.iter().any(|one| one.message == notice.message);
            if !is_known {
                notices.pending.push_back(notice.clone());
                notices.bound();
            }
        };
        self.edit(add).await
    }

    /// Returns up to `limit` results for a user, oldest first, and the number of the others. Each is returned
    /// to one turn only: to the process that continues the turn too, because the first one may have died
    /// before it recorded them.
    pub(super) async fn show(
        &self,
        user: Option<&str>,
        turn: &ShowingTurn,
        limit: usize,
    ) -> Result<(Vec<Notice>, usize), EditError> {
        self.edit(|notices| notices.show(user, turn, limit)).await
    }

    /// Changes the results. `change` is called again if others change them at the same time, or the store did
    /// not confirm it.
    async fn edit<T>(&self, change: impl Fn(&mut Notices) -> T) -> Result<T, EditError> {
        let name = [self.agent.as_str()];
        let mut unconfirmed = None;
        for _ in 0..ATTEMPTS {
            let (before, expected) = match self.documents.get(&name).await? {
                Some(found) => (found.value, Expected::Version(found.version)),
                None => (Notices::default(), Expected::Absent),
            };
            let mut notices = before.clone();
            let result = change(&mut notices);
            if notices == before {
                return Ok(result);
            }
            match self.documents.put(&name, &notices, None, expected).await {
                Ok(PutOutcome::Done(_)) => return Ok(result),
                Ok(PutOutcome::Conflict(_)) => {}
                Err(error @ DocumentError::Store(StoreError::Unconfirmed { .. })) => {
                    unconfirmed = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(unconfirmed.map_or(EditError::Contended, EditError::from))
    }
}

impl Notices {
    fn show(
        &mut self,
        user: Option<&str>,
        turn: &ShowingTurn,
        limit: usize,
    ) -> (Vec<Notice>, usize) {
        let (mut shown, mut others, mut kept) = (Vec::new(), 0, VecDeque::new());
        for mut notice in std::mem::take(&mut self.pending) {
            let is_own = is_visible(user, notice.user.as_deref());
            match &notice.turn {
                Some(before) if before == turn => shown.push(notice.clone()),
                // Its turn has ended, because the turns of a conversation run one after the other.
                Some(before) if before.session == turn.session => {
                    self.remember(notice.message);
                    continue;
                }
                Some(_) => {}
                None if is_own && shown.len() < limit => {
                    notice.turn = Some(turn.clone());
                    shown.push(notice.clone());
                }
                None => others += usize::from(is_own),
            }
            kept.push_back(notice);
        }
        self.pending = kept;
        (shown, others)
    }

    /// Drops a result if too many wait: one that a turn shows, or else the oldest of the user with the most.
    fn bound(&mut self) {
        if self.pending.len() <= MAX_PENDING {
            return;
        }
        let of =
            |user: &Option<String>| self.pending.iter().filter(|one| one.user == *user).count();
        let most = self.pending.iter().map(|one| of(&one.user)).max().unwrap_or_default();
        let showing = self.pending.iter().position(|one| one.turn.is_some());
        let oldest = || self.pending.iter().position(|one| of(&one.user) == most);
        let dropped = showing.or_else(oldest).and_then(|at| self.pending.remove(at));
        if let Some(dropped) = dropped {
            self.remember(dropped.message);
        }
    }

    fn remember(&mut self, message: MessageId) {
        self.shown.push_back(message);
        if self.shown.len() > MAX_SHOWN {
            self.shown.pop_front();
        }
    }
}

/// Returns `true` if `user` may see what belongs to `owner`. Without a validated user on either side, users
/// cannot be distinguished.
pub(super) fn is_visible(user: Option<&str>, owner: Option<&str>) -> bool {
    user.zip(owner).is_none_or(|(user, owner)| user == owner)
}

/// Truncates a text to `bytes`, with an ellipsis.
pub(super) fn truncate(text: &mut String, bytes: usize) {
    const ELLIPSIS: char = '…';
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes - ELLIPSIS.len_utf8()));
        text.push(ELLIPSIS);
    }
}

#[cfg(test)]
mod tests {
    use rockbot_store::{Clock, MemoryStore};

    use super::*;

    fn store() -> NoticeStore {
        let store = Arc::new(MemoryStore::new(Clock::System));
        NoticeStore::new(store, &AgentName::new("assistant").unwrap())
    }

    fn notice(id: usize, user: Option<&str>) -> Notice {
        Notice {
            message: MessageId::new(format!("m{id}")).unwrap(),
            task: TaskName::new("report").unwrap(),
            fire: Timestamp::from_millis(0),
            session: None,
            user: user.map(str::to_owned),
            outcome: TurnOutcome::Completed,
            text: "ü".repeat(2000),
            turn: None,
        }
    }

    fn turn(session: &str, message: &str) -> ShowingTurn {
        let (session, message) = (SessionId::new(session), MessageId::new(message));
        ShowingTurn { session: session.unwrap(), message: message.unwrap() }
    }

    async fn shown(
        notices: &NoticeStore,
        user: Option<&str>,
        turn: ShowingTurn,
        limit: usize,
    ) -> (Vec<String>, usize) {
        let (shown, others) = notices.show(user, &turn, limit).await.unwrap();
        (shown.iter().map(|one| one.message.to_string()).collect(), others)
    }

    fn ids<const N: usize>(ids: [&str; N]) -> Vec<String> {
        ids.map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn result_added_twice_is_shown_to_one_turn() {
        let notices = store();
        for id in [1, 2, 1] {
            notices.add(notice(id, None)).await.unwrap();
        }
        let (first, others) = notices.show(None, &turn("s", "one"), 1).await.unwrap();
        assert_eq!((first.len(), others), (1, 1));
        assert!(first[0].text.len() <= MAX_TEXT_BYTES && first[0].text.ends_with('…'));
        notices.add(notice(1, None)).await.unwrap();
        // Another process continues the turn.
        assert_eq!(shown(&notices, None, turn("s", "one"), 1).await, (ids(["m1"]), 1));
        assert_eq!(shown(&notices, None, turn("t", "other"), 3).await, (ids(["m2"]), 0));
        assert_eq!(shown(&notices, None, turn("s", "two"), 3).await, (ids([]), 0));
        notices.add(notice(1, None)).await.unwrap();
        assert_eq!(shown(&notices, None, turn("s", "two"), 3).await, (ids([]), 0));
    }

    #[tokio::test]
    async fn results_wait_for_their_user_in_a_bounded_number() {
        let notices = store();
        notices.add(notice(100, Some("bob"))).await.unwrap();
        for id in 0..MAX_PENDING + 2 {
            notices.add(notice(id, Some("alice"))).await.unwrap();
        }
        assert_eq!(shown(&notices, Some("bob"), turn("b", "one"), 3).await, (ids(["m100"]), 0));
        let (alice, others) = shown(&notices, Some("alice"), turn("a", "one"), 1).await;
        assert_eq!((alice, others), (ids(["m3"]), MAX_PENDING - 2));
        // Those that turns show are dropped first.
        notices.add(notice(200, Some("alice"))).await.unwrap();
        assert_eq!(shown(&notices, Some("bob"), turn("b", "one"), 3).await, (ids([]), 0));
        let (alice, _) = shown(&notices, Some("alice"), turn("a", "one"), 1).await;
        assert_eq!(alice, ids(["m3"]));
    }
}
