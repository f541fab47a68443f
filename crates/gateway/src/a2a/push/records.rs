//! Targets of push notifications in the gateway's store.
//!
//! The targets of a task are one document. A target whose notifications are not all delivered has an entry in a
//! second list, which the notifiers of all replicas read.

use std::sync::Arc;

use rockbot_contracts::{AgentName, MessageId};
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Version};
use serde::{Deserialize, Serialize};

use super::{
    super::{caller::Caller, error::A2aError, records::TTL},
    target::PushTarget,
};
use crate::store_limit::within_limit;

/// Maximum number of targets of one task.
const MAX_TARGETS: usize = 5;
/// Maximum number of targets of a caller whose notifications are not delivered.
const MAX_OPEN: usize = 512;
/// Attempts to write the targets of a task while other requests do.
const ATTEMPTS: usize = 8;

/// The targets of one task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Targets {
    targets: Vec<PushTarget>,
}

/// A target with notifications that are not delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct OpenPush {
    /// The subject of the caller.
    pub(in super::super) subject: String,
    pub(in super::super) agent: AgentName,
    pub(in super::super) task: MessageId,
    pub(in super::super) target: String,
    /// When the first of the last attempts in a row failed.
    #[serde(default)]
    pub(in super::super) failing_since_ms: Option<u64>,
    /// Trace of the request that registered it.
    #[serde(default)]
    pub(in super::super) trace: Option<String>,
}

/// An entry of the list of open targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct PushEntry {
    /// Name of the list of its caller.
    list: String,
    pub(in super::super) name: String,
    pub(in super::super) open: OpenPush,
    pub(in super::super) version: Version,
}

/// The registered targets. Clones share the store.
#[derive(Debug, Clone)]
pub(in super::super) struct PushRecords {
    targets: Arc<DocumentStore<Targets>>,
    open: Arc<DocumentStore<OpenPush>>,
}

impl OpenPush {
    pub(super) fn new(
        caller: &Caller,
        task: &MessageId,
        target: &PushTarget,
        trace: Option<Arc<str>>,
    ) -> Self {
        Self {
            subject: caller.subject().to_string(),
            agent: caller.agent.clone(),
            task: task.clone(),
            target: target.id.clone(),
            failing_since_ms: None,
            trace: trace.map(|trace| trace.to_string()),
        }
    }

    /// Returns the caller whose task it is.
    pub(in super::super) fn caller(&self) -> Caller {
        Caller::registered(self.subject.as_str().into(), self.agent.clone())
    }
}

impl PushEntry {
    fn key(&self) -> [&str; 2] {
        [&self.list, &self.name]
    }
}

impl PushRecords {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            targets: Arc::new(DocumentStore::new(store.clone(), ["gateway", "a2a-push"])),
            open: Arc::new(DocumentStore::new(store, ["gateway", "a2a-push-open"])),
        }
    }

    /// Returns the targets of a task.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(in super::super) async fn all(
        &self,
        caller: &Caller,
        task: &MessageId,
    ) -> Result<Vec<PushTarget>, A2aError> {
        let found =
            within_limit(self.targets.get(&[caller.record(task.as_str())]), A2aError::store)
                .await?;
        Ok(found.map(|found| found.value.targets).unwrap_or_default())
    }

    /// Returns a target of a task.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(in super::super) async fn get(
        &self,
        caller: &Caller,
        task: &MessageId,
        id: &str,
    ) -> Result<Option<PushTarget>, A2aError> {
        let targets = self.all(caller, task).await?;
        Ok(targets.into_iter().find(|target| target.id == id))
    }

    /// Adds a target, or replaces the one with its id, and opens it for notifiers.
    ///
    /// # Errors
    /// When the task has too many targets, or the caller too many that are open, or the store does not respond.
    pub(super) async fn add(
        &self,
        caller: &Caller,
        task: &MessageId,
        target: &PushTarget,
        open: OpenPush,
    ) -> Result<PushEntry, A2aError> {
        let (list, name) = (caller.open_pushes(), caller.open_push(task, &target.id));
        let listed = within_limit(self.open.list(&[&list], MAX_OPEN), A2aError::store).await?;
        let is_listed = listed.iter().any(|(known, _)| known.last() == Some(&name));
        if listed.len() >= MAX_OPEN && !is_listed {
            return Err(A2aError::too_many_targets(MAX_OPEN));
        }
        let added = self.change(caller, task, |targets| {
            if let Some(known) = targets.iter_mut().find(|known| known.id == target.id) {
                known.clone_from(target);
                return Ok(true);
            }
            if targets.len() >= MAX_TARGETS {
                return Err(A2aError::invalid(format!(
                    "the task has {MAX_TARGETS} configurations; delete one first"
                )));
            }
            targets.push(target.clone());
            Ok(true)
        });
        added.await?;
        // Also if all was delivered: the client asks for the present state.
        let key = [&list, &name];
        let put = self.open.put(&key, &open, Some(TTL), Expected::Anything);
        match within_limit(put, A2aError::store).await.map_err(A2aError::maybe_executed)? {
            PutOutcome::Done(version) => Ok(PushEntry { list, name, open, version }),
            PutOutcome::Conflict(_) => Err(A2aError::store().maybe_executed()),
        }
    }

    /// Removes a target. Returns whether there was one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn remove(
        &self,
        caller: &Caller,
        task: &MessageId,
        id: &str,
    ) -> Result<bool, A2aError> {
        let removed = self.change(caller, task, |targets| {
            let before = targets.len();
            targets.retain(|target| target.id != id);
            Ok(targets.len() < before)
        });
        // A notifier reads the targets before each attempt, and closes an entry without a target.
        removed.await
    }

    /// Changes the targets of a task. Returns what `change` returns: whether it changed them.
    async fn change(
        &self,
        caller: &Caller,
        task: &MessageId,
        mut change: impl FnMut(&mut Vec<PushTarget>) -> Result<bool, A2aError>,
    ) -> Result<bool, A2aError> {
        let name = [caller.record(task.as_str())];
        for _ in 0..ATTEMPTS {
            let found = within_limit(self.targets.get(&name), A2aError::store).await?;
            let (mut targets, expected) = match found {
                Some(Document { value, version, .. }) => (value, Expected::Version(version)),
                None => (Targets::default(), Expected::Absent),
            };
            if !change(&mut targets.targets)? {
                return Ok(false);
            }
            let put = self.targets.put(&name, &targets, Some(TTL), expected);
            let written =
                within_limit(put, A2aError::store).await.map_err(A2aError::maybe_executed)?;
            if matches!(written, PutOutcome::Done(_)) {
                return Ok(true);
            }
        }
        Err(A2aError::store())
    }

    /// Returns up to `limit` open targets.
    ///
    /// # Errors
    /// When the store fails.
    pub(in super::super) async fn open(
        &self,
        limit: usize,
    ) -> Result<Vec<PushEntry>, DocumentError> {
        let found = self.open.list::<&str>(&[], limit).await?;
        let entries = found.into_iter().filter_map(|(name, document)| {
            let Document { value: open, version, .. } = document;
            let [list, name] = <[String; 2]>::try_from(name).ok()?;
            Some(PushEntry { list, name, open, version })
        });
        Ok(entries.collect())
    }

    /// Reads an open target again; `None` if it was closed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(in super::super) async fn reopened(
        &self,
        entry: &PushEntry,
    ) -> Result<Option<PushEntry>, A2aError> {
        let found = within_limit(self.open.get(&entry.key()), A2aError::store).await?;
        Ok(found.map(|found| PushEntry {
            open: found.value,
            version: found.version,
            ..entry.clone()
        }))
    }

    /// Records since when attempts fail, unless the target was registered again; then its entry is the new one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(in super::super) async fn set_failing(
        &self,
        entry: &mut PushEntry,
        since_ms: Option<u64>,
    ) -> Result<(), A2aError> {
        let open = OpenPush { failing_since_ms: since_ms, ..entry.open.clone() };
        let expected = Expected::Version(entry.version);
        match within_limit(self.open.put(&entry.key(), &open, Some(TTL), expected), A2aError::store)
            .await?
        {
            PutOutcome::Done(version) => (entry.open, entry.version) = (open, version),
            PutOutcome::Conflict(Some(found)) => {
                (entry.open, entry.version) = (found.value, found.version);
            }
            PutOutcome::Conflict(None) => {}
        }
        Ok(())
    }

    /// Closes a target whose notifications are delivered or given up, unless it was registered again.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(in super::super) async fn close(&self, entry: &PushEntry) -> Result<(), A2aError> {
        let expected = Expected::Version(entry.version);
        within_limit(self.open.remove(&entry.key(), expected), A2aError::store).await.map(drop)
    }
}
