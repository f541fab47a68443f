//! Lists of the tasks of each caller, the last updated first, in the gateway's store.
//!
//! An entry is written after the record of its task. A process that dies in between leaves a task that is not listed
//! until its message is sent again or its end is recorded.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rockbot_contracts::MessageId;
use rockbot_store::{DocumentError, DocumentStore, Expected, Store};
use serde::{Deserialize, Serialize};

use super::{caller::Caller, state::TaskEnd};

/// An entry, as stored. Its name has the time of the update and the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    context: String,
    #[serde(default)]
    end: Option<TaskEnd>,
}

/// A task in the list of its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedTask {
    pub(super) id: MessageId,
    pub(super) context: String,
    /// When its message was sent last, or when it ended.
    pub(super) updated_ms: u64,
    /// Absent until a gateway has recorded the end.
    pub(super) end: Option<TaskEnd>,
}

/// The lists of all callers. Clones share the store.
#[derive(Debug, Clone)]
pub(super) struct TaskIndex(Arc<DocumentStore<Entry>>);

impl TaskIndex {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(DocumentStore::new(store, ["gateway", "a2a-lists"])))
    }

    /// Lists a task for `ttl`, instead of its entry with the time `previous_ms`.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn put(
        &self,
        caller: &Caller,
        task: ListedTask,
        previous_ms: u64,
        ttl: Duration,
    ) -> Result<(), DocumentError> {
        let ListedTask { id, context, updated_ms, end } = task;
        let list = caller.list();
        let name = [list.as_str(), &entry_name(updated_ms, &id)];
        self.0.put(&name, &Entry { context, end }, Some(ttl), Expected::Anything).await?;
        if previous_ms != updated_ms {
            // An older entry that remains is skipped by readers.
            let previous = [list.as_str(), &entry_name(previous_ms, &id)];
            self.0.remove(&previous, Expected::Anything).await?;
        }
        Ok(())
    }

    /// Removes the entry of a task with the time `updated_ms`.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn remove(
        &self,
        caller: &Caller,
        task: &MessageId,
        updated_ms: u64,
    ) -> Result<(), DocumentError> {
        let name = [caller.list(), entry_name(updated_ms, task)];
        self.0.remove(&name, Expected::Anything).await.map(drop)
    }

    /// Returns up to `limit` tasks of the caller, the last updated first.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn newest(
        &self,
        caller: &Caller,
        limit: usize,
    ) -> Result<Vec<ListedTask>, DocumentError> {
        let entries = self.0.list(&[caller.list()], limit).await?;
        let mut seen = HashSet::new();
        let tasks = entries.into_iter().filter_map(|(name, document)| {
            let (updated_ms, id) = parse_name(name.last()?)?;
            let Entry { context, end } = document.value;
            let is_new = seen.insert(id.clone());
            is_new.then_some(ListedTask { id, context, updated_ms, end })
        });
        Ok(tasks.collect())
    }
}

/// Returns the last segment of a key. Keys are ordered by their bytes, so a later time has a smaller one.
fn entry_name(updated_ms: u64, task: &MessageId) -> String {
    format!("{:016x}-{task}", u64::MAX - updated_ms)
}

fn parse_name(name: &str) -> Option<(u64, MessageId)> {
    let (inverted, task) = name.split_once('-')?;
    let inverted = u64::from_str_radix(inverted, 16).ok()?;
    Some((u64::MAX - inverted, MessageId::new(task).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_orders_later_updates_first() {
        let task = MessageId::new("t-1").unwrap();
        let names = [u64::MAX, 1_700_000_000_000, 1, 0].map(|ms| entry_name(ms, &task));
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(parse_name(&names[1]), Some((1_700_000_000_000, task)));
        assert_eq!(parse_name("x"), None);
    }
}
