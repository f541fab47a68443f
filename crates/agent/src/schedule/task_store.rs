//! The stored tasks of an agent.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use rockbot_contracts::AgentName;
use rockbot_store::{
    Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Timestamp, Version,
};
use serde::Deserialize;
use tracing::warn;

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
    /// The unreadable tasks that were reported.
    reported: Mutex<HashSet<Version>>,
}

/// A stored task that this program cannot read: it is damaged, or another version wrote it.
pub(super) struct UnreadableTask {
    pub(super) version: Version,
    /// The broker user of the task, if it can be read.
    pub(super) user: Option<String>,
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
        let documents = DocumentStore::new(store.clone(), [SPACE, agent.as_str()]);
        Self { documents, store, reported: Mutex::default() }
    }

    /// Returns the time of the store, which all processes share.
    pub(super) async fn now(&self) -> Result<Timestamp, DocumentError> {
        Ok(self.store.now().await?)
    }

    /// Returns the tasks. Those that cannot be read are skipped, with a warning for each version.
    pub(super) async fn list(&self) -> Result<Vec<Document<ScheduledTask>>, DocumentError> {
        let (tasks, unreadable) = self.documents.list_all::<&str>(&[], MAX_LISTED).await?;
        let mut reported = self.reported.lock();
        for (name, version, error) in &unreadable {
            if !reported.contains(version) {
                let task = name.join("/");
                warn!(task, %error, "scheduled task skipped; cancel it, or schedule it again");
            }
        }
        *reported = unreadable.into_iter().map(|(_, version, _)| version).collect();
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    /// Returns the stored task if this program cannot read it.
    pub(super) async fn unreadable(
        &self,
        name: &TaskName,
    ) -> Result<Option<UnreadableTask>, DocumentError> {
        #[derive(Deserialize)]
        struct Owned {
            created: Creator,
        }
        #[derive(Deserialize)]
        struct Creator {
            user: Option<String>,
        }
        let Some(entry) = self.documents.entry(&[name.key()]).await? else { return Ok(None) };
        if serde_json::from_slice::<ScheduledTask>(&entry.value).is_ok() {
            return Ok(None);
        }
        let owned = serde_json::from_slice::<Owned>(&entry.value);
        let user = owned.ok().and_then(|owned| owned.created.user);
        Ok(Some(UnreadableTask { version: entry.version, user }))
    }

    pub(super) async fn get(
        &self,
        name: &TaskName,
    ) -> Result<Option<Document<ScheduledTask>>, DocumentError> {
        self.documents.get(&[name.key()]).await
    }

    /// Writes a task. Returns its version; `None` if the stored one is not as expected.
    pub(super) async fn put(
        &self,
        task: &ScheduledTask,
        expected: Expected,
    ) -> Result<Option<Version>, DocumentError> {
        let written = self.documents.put(&[task.name.key()], task, None, expected).await?;
        Ok(match written {
            PutOutcome::Done(version) => Some(version),
            PutOutcome::Conflict(_) => None,
        })
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
                Edit::Put => self.put(&task, Expected::Version(version)).await?.is_some(),
                Edit::Remove => self.remove(name, version).await?,
            };
            if is_done {
                return Ok(Some(task));
            }
        }
        Err(EditError::Contended)
    }
}
