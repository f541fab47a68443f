//! The stored tasks of an agent.

use std::sync::Arc;

use rockbot_contracts::AgentName;
use rockbot_store::{
    Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Timestamp, Version,
};

use super::task::{ScheduledTask, TaskName};

/// First segment of the keys, `schedule/<agent>/<task>`.
const SPACE: &str = "schedule";
/// Maximum number of tasks that are listed: above the limit of the configuration.
const MAX_LISTED: usize = 256;
/// Attempts to change a task while others change it.
const ATTEMPTS: usize = 8;

/// The tasks of an agent. Each write names the version of the task that it replaces.
pub(super) struct TaskStore {
    documents: DocumentStore<ScheduledTask>,
    store: Arc<dyn Store>,
}

/// A change of a task.
pub(super) enum Edit {
    /// Nothing changes.
    Keep,
    Put,
    Remove,
}

/// Why a task was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    /// Others changed it at the same time.
    #[error("the task is being changed by others; try again")]
    Contended,
    #[error(transparent)]
    Store(#[from] DocumentError),
}

impl TaskStore {
    pub(super) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        Self { documents: DocumentStore::new(store.clone(), [SPACE, agent.as_str()]), store }
    }

    /// Returns the time of the store, which all processes share.
    pub(super) async fn now(&self) -> Result<Timestamp, DocumentError> {
        Ok(self.store.now().await?)
    }

    pub(super) async fn list(&self) -> Result<Vec<Document<ScheduledTask>>, DocumentError> {
        let tasks = self.documents.list::<&str>(&[], MAX_LISTED).await?;
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    pub(super) async fn get(
        &self,
        name: &TaskName,
    ) -> Result<Option<Document<ScheduledTask>>, DocumentError> {
        self.documents.get(&[name.key()]).await
    }

    /// Writes a task. Returns `false` if the stored one is not as expected.
    pub(super) async fn put(
        &self,
        task: &ScheduledTask,
        expected: Expected,
    ) -> Result<bool, DocumentError> {
        let written = self.documents.put(&[task.name.key()], task, None, expected).await?;
        Ok(matches!(written, PutOutcome::Done(_)))
    }

    /// Removes a task of this version. Returns `true` if it was removed.
    pub(super) async fn remove(
        &self,
        name: &TaskName,
        version: Version,
    ) -> Result<bool, DocumentError> {
        self.documents.remove(&[name.key()], Expected::Version(version)).await
    }

    /// Changes a task with `edit`, which is called again if others change it at the same time. Returns the
    /// task afterwards; `None` if it does not exist or `edit` kept it.
    pub(super) async fn edit(
        &self,
        name: &TaskName,
        mut edit: impl FnMut(&mut ScheduledTask) -> Edit,
    ) -> Result<Option<ScheduledTask>, EditError> {
        for _ in 0..ATTEMPTS {
            let Some(Document { value: mut task, version, .. }) = self.get(name).await? else {
                return Ok(None);
            };
            let is_done = match edit(&mut task) {
                Edit::Keep => return Ok(None),
                Edit::Put => self.put(&task, Expected::Version(version)).await?,
                Edit::Remove => self.remove(name, version).await?,
            };
            if is_done {
                return Ok(Some(task));
            }
        }
        Err(EditError::Contended)
    }
}
