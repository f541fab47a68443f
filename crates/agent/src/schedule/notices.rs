//! Results of scheduled tasks that their user has not seen yet.

use std::{collections::VecDeque, sync::Arc};

use rockbot_contracts::{AgentName, MessageId, SessionId, user::TurnOutcome};
use rockbot_store::{DocumentStore, Expected, PutOutcome, Store, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    task::{TaskName, millis},
    task_store::EditError,
};

/// First segment of the key, `schedule-notices/<agent>`.
const SPACE: &str = "schedule-notices";
/// Maximum number of results that wait. The oldest are dropped.
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
            if is_known {
                return None;
            }
            notices.pending.push_back(notice.clone());
            if notices.pending.len() > MAX_PENDING {
                notices.pending.pop_front();
            }
            Some(())
        };
        self.edit(add).await.map(drop)
    }

    /// Removes and returns up to `limit` results for a user, oldest first, and the number of the others.
    /// Each result is returned once.
    pub(super) async fn take(
        &self,
        user: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Notice>, usize), EditError> {
        let take = |notices: &mut Notices| {
            let (mut taken, mut others, mut kept) = (Vec::new(), 0, VecDeque::new());
            for notice in std::mem::take(&mut notices.pending) {
                let is_own = is_visible(user, notice.user.as_deref());
                if is_own && taken.len() < limit {
                    notices.shown.push_back(notice.message.clone());
                    taken.push(notice);
                } else {
                    others += usize::from(is_own);
                    kept.push_back(notice);
                }
            }
            notices.pending = kept;
            while notices.shown.len() > MAX_SHOWN {
                notices.shown.pop_front();
            }
            (!taken.is_empty()).then_some((taken, others))
        };
        Ok(self.edit(take).await?.unwrap_or_default())
    }

    /// Changes the results. Nothing is written if `change` returns `None`.
    async fn edit<T>(
        &self,
        change: impl Fn(&mut Notices) -> Option<T>,
    ) -> Result<Option<T>, EditError> {
        let name = [self.agent.as_str()];
        for _ in 0..ATTEMPTS {
            let (mut notices, expected) = match self.documents.get(&name).await? {
                Some(found) => (found.value, Expected::Version(found.version)),
                None => (Notices::default(), Expected::Absent),
            };
            let Some(result) = change(&mut notices) else { return Ok(None) };
            let written = self.documents.put(&name, &notices, None, expected).await;
            if let PutOutcome::Done(_) = written? {
                return Ok(Some(result));
            }
        }
        Err(EditError::Contended)
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
        }
    }

    fn ids(taken: &(Vec<Notice>, usize)) -> (Vec<String>, usize) {
        (taken.0.iter().map(|one| one.message.to_string()).collect(), taken.1)
    }

    #[tokio::test]
    async fn result_added_twice_is_shown_once() {
        let notices = store();
        for id in [1, 2, 1] {
            notices.add(notice(id, None)).await.unwrap();
        }
        let (first, others) = notices.take(None, 1).await.unwrap();
        assert_eq!((first.len(), others), (1, 1));
        assert!(first[0].text.len() <= MAX_TEXT_BYTES && first[0].text.ends_with('…'));
        notices.add(notice(1, None)).await.unwrap();
        assert_eq!(ids(&notices.take(None, 3).await.unwrap()), (vec!["m2".to_owned()], 0));
        assert_eq!(ids(&notices.take(None, 3).await.unwrap()), (vec![], 0));
    }

    #[tokio::test]
    async fn results_wait_for_their_user_in_a_bounded_number() {
        let notices = store();
        for id in 0..MAX_PENDING + 2 {
            notices.add(notice(id, Some("alice"))).await.unwrap();
        }
        assert_eq!(ids(&notices.take(Some("bob"), 3).await.unwrap()), (vec![], 0));
        let (taken, others) = ids(&notices.take(Some("alice"), 1).await.unwrap());
        assert_eq!((taken[0].as_str(), others), ("m2", MAX_PENDING - 1));
    }
}
