//! Tasks of the last 7 days in the gateway's store. Messages and answers are in the agent's store.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::MessageId;
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    caller::Caller,
    error::A2aError,
    state::TaskEnd,
    task_index::{ListedTask, TaskIndex},
};

/// Time for which a task and its message are recognized.
const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Time limit for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest detail of an end, in bytes.
const MAX_DETAIL_BYTES: usize = 1024;

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

    /// Records a new task, and returns it; the recorded one, if there is one. The flag is set for a new one.
    ///
    /// # Errors
    /// When its message was sent with another content, or the store does not respond.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        task: &MessageId,
        new: Record,
    ) -> Result<(Record, bool), A2aError> {
        let name = [caller.record(task.as_str())];
        let put = self.tasks.put(&name, &new, Some(TTL), Expected::Absent);
        match within_limit(put).await? {
            PutOutcome::Done(_) => {
                within_limit(self.list(caller, task, &new, new.sent_ms)).await?;
                Ok((new, true))
            }
            PutOutcome::Conflict(Some(found)) if found.value.digest == new.digest => {
                if found.value.end.is_some() {
                    return Ok((found.value, false));
                }
                // Its message is sent again, so the time in which the agent may receive it begins again.
                let previous_ms = found.value.sent_ms;
                let again = Record { sent_ms: new.sent_ms, ..found.value };
                let expected = Expected::Version(found.version);
                match within_limit(self.tasks.put(&name, &again, Some(TTL), expected)).await? {
                    PutOutcome::Done(_) => {
                        within_limit(self.list(caller, task, &again, previous_ms)).await?;
                        Ok((again, false))
                    }
                    // It was sent or ended at another gateway meanwhile.
                    PutOutcome::Conflict(_) => Ok((self.get(caller, task.as_str()).await?, false)),
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
        let found = within_limit(self.tasks.get(&[caller.record(task)])).await?;
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
        within_limit(self.index.newest(caller, limit)).await
    }

    /// Lists a task as its record has it, instead of its entry with the time `previous_ms`.
    async fn list(
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
        let found =
            within_limit(self.tasks.get(&name)).await?.ok_or_else(A2aError::unknown_task)?;
        if found.value != *record {
            return Ok(false);
        }
        let ended = Record { end: Some(end.clone()), ..found.value };
        let put = self.tasks.put(&name, &ended, Some(TTL), Expected::Version(found.version));
        let is_done = matches!(within_limit(put).await?, PutOutcome::Done(_));
        if is_done {
            within_limit(self.list(caller, task, &ended, ended.sent_ms)).await?;
        }
        Ok(is_done)
    }

    /// Records the end of a task, unless one is recorded. Without it, the agent is queried for it.
    pub(super) async fn end(&self, caller: &Caller, task: &MessageId, mut end: TaskEnd) {
        if let Some(detail) = &mut end.detail {
            detail.truncate(detail.floor_char_boundary(MAX_DETAIL_BYTES));
        }
        let name = caller.record(task.as_str());
        let write = async {
            let Some(Document { value, version, .. }) = self.tasks.get(&[&name]).await? else {
                return Ok(());
            };
            if value.end.is_some() {
                return Ok(());
            }
            let record = Record { end: Some(end), ..value };
            // Another gateway that wrote it meanwhile saw the same end.
            let written =
                self.tasks.put(&[&name], &record, Some(TTL), Expected::Version(version)).await?;
            let is_done = matches!(written, PutOutcome::Done(_));
            debug!(task_id = %task, conflict = !is_done, "task ended");
            if is_done {
                self.list(caller, task, &record, record.sent_ms).await?;
            }
            Ok::<_, DocumentError>(())
        };
        match timeout(STORE_TIMEOUT, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(task_id = %task, %error, "end of a task not recorded"),
            Err(_) => warn!(task_id = %task, "end of a task not recorded in time"),
        }
    }
}

async fn within_limit<T>(
    operation: impl Future<Output = Result<T, DocumentError>>,
) -> Result<T, A2aError> {
    match timeout(STORE_TIMEOUT, operation).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            warn!(%error, "store of the tasks failed");
            Err(A2aError::store())
        }
        Err(_) => Err(A2aError::store()),
    }
}
