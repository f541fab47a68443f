//! Tasks of the last 7 days in the gateway's store. Messages and answers are in the agent's store.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::MessageId;
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Version};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    caller::Caller,
    error::A2aError,
    state::TaskEnd,
    task_index::{ListedTask, TaskIndex},
};
use crate::store_limit::{STORE_TIMEOUT, within_limit};

/// Time for which a task and its message are recognized.
pub(super) const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest detail of an end, in bytes.
const MAX_DETAIL_BYTES: usize = 1024;
/// Attempts to record an end while the message is sent again.
const END_ATTEMPTS: usize = 2;

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Digest of the message's content.
    pub(super) digest: String,
    pub(super) context: String,
    /// When its message was sent last.
    pub(super) sent_ms: u64,
    /// Absent until a gateway has seen the end.
    #[serde(default)]
    pub(super) end: Option<TaskEnd>,
}

/// A task whose message is to be sent, unless it has ended.
#[derive(Debug)]
pub(super) struct BegunTask {
    pub(super) record: Record,
    /// Version of the record of a new task; `None` if its message was sent before.
    pub(super) new_version: Option<Version>,
}

/// The recorded tasks. Clones share the store.
#[derive(Debug, Clone)]
pub(super) struct Records {
    tasks: Arc<DocumentStore<Record>>,
    index: TaskIndex,
}

impl Records {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let index = TaskIndex::new(store.clone());
        Self { tasks: Arc::new(DocumentStore::new(store, ["gateway", "a2a-tasks"])), index }
    }

    /// Records a new task, and returns it; the recorded one, if there is one.
    ///
    /// # Errors
    /// When its message was sent with another content, or the store does not respond. The error for a task that is
    /// recorded says that its message may have arrived.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        task: &MessageId,
        new: Record,
    ) -> Result<BegunTask, A2aError> {
        let repeated = |record| BegunTask { record, new_version: None };
        let name = [caller.record(task.as_str())];
        let put = self.tasks.put(&name, &new, Some(TTL), Expected::Absent);
        match within_limit(put, A2aError::store).await? {
            PutOutcome::Done(version) => {
                within_limit(self.update_index(caller, task, &new, new.sent_ms), A2aError::store)
                    .await?;
                Ok(BegunTask { record: new, new_version: Some(version) })
            }
            PutOutcome::Conflict(Some(found)) if found.value.digest == new.digest => {
                if found.value.end.is_some() {
                    return Ok(repeated(found.value));
                }
                // Its message is sent again, so the time in which the agent may receive it begins again.
                let previous_ms = found.value.sent_ms;
                let again = Record { sent_ms: new.sent_ms, ..found.value };
                let expected = Expected::Version(found.version);
                let put = self.tasks.put(&name, &again, Some(TTL), expected);
                match within_limit(put, A2aError::store).await.map_err(A2aError::maybe_executed)? {
                    PutOutcome::Done(_) => {
                        let listed = within_limit(
                            self.update_index(caller, task, &again, previous_ms),
                            A2aError::store,
                        );
                        listed.await.map_err(A2aError::maybe_executed)?;
                        Ok(repeated(again))
                    }
                    // It was sent or ended by another request meanwhile.
                    PutOutcome::Conflict(Some(changed)) => Ok(repeated(changed.value)),
                    // It was not sent, and forgotten, or it has expired.
                    PutOutcome::Conflict(None) => Err(A2aError::store().maybe_executed()),
                }
            }
            PutOutcome::Conflict(Some(_)) => Err(A2aError::invalid(
                "the messageId was used for another message; use a new one for each message",
            )),
            PutOutcome::Conflict(None) => Err(A2aError::store()),
        }
    }

    /// Returns a task of the caller.
    ///
    /// # Errors
    /// When the caller has no such task, or the store does not respond.
    pub(super) async fn get(&self, caller: &Caller, task: &str) -> Result<Record, A2aError> {
        let found = within_limit(self.tasks.get(&[caller.record(task)]), A2aError::store).await?;
        found.map(|found| found.value).ok_or_else(A2aError::unknown_task)
    }

    /// Returns up to `limit` tasks of the caller, the last updated first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn newest(
        &self,
        caller: &Caller,
        limit: usize,
    ) -> Result<Vec<ListedTask>, A2aError> {
        within_limit(self.index.newest(caller, limit), A2aError::store).await
    }

    /// Writes the entry of a task in the list of its caller, instead of the one with the time `previous_ms`.
    async fn update_index(
        &self,
        caller: &Caller,
        task: &MessageId,
        record: &Record,
        previous_ms: u64,
    ) -> Result<(), DocumentError> {
        let Record { context, sent_ms, end, .. } = record.clone();
        let updated_ms = end.as_ref().map_or(sent_ms, |end| end.at_ms);
        let listed = ListedTask { id: task.clone(), context, updated_ms, end };
        self.index.put(caller, listed, previous_ms, TTL).await
    }

    /// Records that the agent will not receive the message of a task, unless it was sent again or its end is recorded
    /// since `record` was read. Returns whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn reject(
        &self,
        caller: &Caller,
        task: &MessageId,
        record: &Record,
        end: &TaskEnd,
    ) -> Result<bool, A2aError> {
        let name = [caller.record(task.as_str())];
        let found = within_limit(self.tasks.get(&name), A2aError::store)
            .await?
            .ok_or_else(A2aError::unknown_task)?;
        if found.value != *record {
            return Ok(false);
        }
        let ended = Record { end: Some(end.clone()), ..found.value };
        let put = self.tasks.put(&name, &ended, Some(TTL), Expected::Version(found.version));
        let is_done = matches!(within_limit(put, A2aError::store).await?, PutOutcome::Done(_));
        if is_done {
            within_limit(self.update_index(caller, task, &ended, ended.sent_ms), A2aError::store)
                .await?;
        }
        Ok(is_done)
    }

    /// Removes a new task whose message did not arrive, unless its message was sent again since its record got this
    /// version. A task that remains is rejected later. Returns whether it was removed: otherwise its message may have been
    /// sent.
    pub(super) async fn forget(
        &self,
        caller: &Caller,
        task: &MessageId,
        record: &Record,
        version: Version,
    ) -> bool {
        let name = [caller.record(task.as_str())];
        let remove = async {
            let is_removed = self.tasks.remove(&name, Expected::Version(version)).await?;
            if is_removed {
                self.index.remove(caller, task, record.sent_ms).await?;
            }
            Ok::<_, DocumentError>(is_removed)
        };
        match timeout(STORE_TIMEOUT, remove).await {
            Ok(Ok(is_removed)) => return is_removed,
            Ok(Err(error)) => warn!(task_id = %task, %error, "task without a message not removed"),
            Err(_) => warn!(task_id = %task, "task without a message not removed in time"),
        }
        false
    }

    /// Records the end of a task, unless one is recorded, and returns the recorded one. `None` without it: the agent
    /// is queried for it then.
    pub(super) async fn end(
        &self,
        caller: &Caller,
        task: &MessageId,
        mut end: TaskEnd,
    ) -> Option<TaskEnd> {
        if let Some(detail) = &mut end.detail {
            detail.truncate(detail.floor_char_boundary(MAX_DETAIL_BYTES));
        }
        let name = caller.record(task.as_str());
        let write = async {
            for _ in 0..END_ATTEMPTS {
                let Some(Document { value, version, .. }) = self.tasks.get(&[&name]).await? else {
                    return Ok(None);
                };
                if value.end.is_some() {
                    return Ok(value.end);
                }
                let record = Record { end: Some(end.clone()), ..value };
                // A request that sends the message again changes the record too.
                let expected = Expected::Version(version);
                let written = self.tasks.put(&[&name], &record, Some(TTL), expected).await?;
                let is_done = matches!(written, PutOutcome::Done(_));
                debug!(task_id = %task, conflict = !is_done, "task ended");
                if is_done {
                    self.update_index(caller, task, &record, record.sent_ms).await?;
                    return Ok(record.end);
                }
            }
            Ok::<_, DocumentError>(None)
        };
        match timeout(STORE_TIMEOUT, write).await {
            Ok(Ok(recorded)) => recorded,
            Ok(Err(error)) => {
                warn!(task_id = %task, %error, "end of a task not recorded");
                None
            }
            Err(_) => {
                warn!(task_id = %task, "end of a task not recorded in time");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicBool, Ordering},
    };

    use futures_util::{FutureExt, future::BoxFuture};
    use rockbot_contracts::AgentName;
    use rockbot_store::{Clock, MemoryStore, StoreError, Write, Written};
    use rockbot_testkit::{InterceptedStore, StoreInterceptor};

    use super::{super::state::TaskState, *};
    use crate::identity::{Credential, Identity, NamePatterns};

    /// Writes an entry before the first write that expects a version of it.
    struct WriteBefore(AtomicBool);

    impl StoreInterceptor for WriteBefore {
        fn write<'a>(
            &'a self,
            store: &'a dyn Store,
            write: Write,
        ) -> BoxFuture<'a, Result<Written, StoreError>> {
            async move {
                let expects_version = matches!(write.expected, Expected::Version(_));
                if expects_version && self.0.swap(false, Ordering::SeqCst) {
                    let entry = store.get(&write.key).await?.unwrap();
                    store.write(Write::new(write.key.clone(), entry.value)).await?;
                }
                store.write(write).await
            }
            .boxed()
        }
    }

    fn caller() -> Caller {
        let identity = Identity {
            subject: Arc::from("peer"),
            credential: Credential::Token,
            rights: BTreeSet::new(),
            faces: BTreeSet::new(),
            agents: NamePatterns::all(),
            tools: NamePatterns::all(),
            requests_per_minute: None,
            address: None,
        };
        Caller::new(identity, AgentName::new("assistant").unwrap())
    }

    fn record() -> Record {
        Record { digest: "d".to_owned(), context: "c".to_owned(), sent_ms: 1, end: None }
    }

    fn memory() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(Clock::System))
    }

    #[tokio::test]
    async fn end_is_recorded_after_a_conflict() {
        let store = InterceptedStore::wrap(memory(), WriteBefore(AtomicBool::new(true)));
        let (records, caller) = (Records::new(store), caller());
        let task = MessageId::new("t").unwrap();
        records.begin(&caller, &task, record()).await.unwrap();
        let end = TaskEnd { state: TaskState::Completed, at_ms: 2, detail: None };
        assert_eq!(records.end(&caller, &task, end.clone()).await, Some(end.clone()));
        assert_eq!(records.get(&caller, "t").await.unwrap().end, Some(end.clone()));
        let later = TaskEnd { at_ms: 3, ..end.clone() };
        assert_eq!(records.end(&caller, &task, later).await, Some(end), "the first one stays");
    }

    #[tokio::test]
    async fn list_of_many_tasks_has_the_newest_in_a_total_order() {
        let (records, caller) = (Records::new(memory()), caller());
        // Two tasks in each millisecond, the oldest first.
        for number in 0..2_500_u64 {
            let task = MessageId::new(format!("t-{number:04}")).unwrap();
            let new = Record { sent_ms: number / 2, ..record() };
            records.begin(&caller, &task, new).await.unwrap();
        }
        let newest = records.newest(&caller, 1_000).await.unwrap();
        let expected = (1_500..2_500_u64).map(|number| (number / 2, number));
        let mut expected: Vec<_> = expected.collect();
        expected.sort_by_key(|(at, number)| (std::cmp::Reverse(*at), *number));
        let expected: Vec<_> =
            expected.into_iter().map(|(at, number)| (at, format!("t-{number:04}"))).collect();
        let newest: Vec<_> =
            newest.into_iter().map(|task| (task.updated_ms, task.id.to_string())).collect();
        assert_eq!(newest, expected);
    }

    #[tokio::test]
    async fn task_whose_message_was_sent_again_is_not_forgotten() {
        let (records, caller) = (Records::new(memory()), caller());
        let task = MessageId::new("t").unwrap();
        let begun = records.begin(&caller, &task, record()).await.unwrap();
        let repeated = records.begin(&caller, &task, record()).await.unwrap();
        assert_eq!(repeated.new_version, None);
        let version = begun.new_version.unwrap();
        records.forget(&caller, &task, &begun.record, version).await;
        assert_eq!(records.get(&caller, "t").await.unwrap(), record());
        assert_eq!(records.newest(&caller, 10).await.unwrap().len(), 1);
    }
}
