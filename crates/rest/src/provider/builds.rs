//! Builds of entries that read documents, each in a task of its own.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::{
    build::{BuildOutcome, build},
    entries::EntryKey,
    options::RestOptions,
};
use crate::{call::RestClient, config::RestFile};

/// An entry that was built.
pub(super) struct FinishedBuild {
    id: u64,
    pub(super) key: EntryKey,
    pub(super) raw: Value,
    pub(super) outcome: BuildOutcome,
}

/// The running builds, at most one of each entry. Dropping them ends their tasks.
pub(super) struct Builds {
    running: BTreeMap<EntryKey, RunningBuild>,
    next_id: u64,
    finished: mpsc::Sender<FinishedBuild>,
    count: watch::Sender<usize>,
}

struct RunningBuild {
    id: u64,
    raw: Value,
    _task: AbortOnDropHandle<()>,
}

impl Builds {
    /// Creates builds that are sent to `finished`, and whose number is published as `count`.
    pub(super) fn new(finished: mpsc::Sender<FinishedBuild>, count: watch::Sender<usize>) -> Self {
        Self { running: BTreeMap::new(), next_id: 0, finished, count }
    }

    /// Ends the builds of entries that are not in the file any more as they were.
    pub(super) fn retain(&mut self, file: &RestFile) {
        self.running.retain(|key, build| file.entries.get(key) == Some(&build.raw));
        self.publish_count();
    }

    /// Returns `true` if the entry is being built as it is.
    pub(super) fn is_running(&self, key: &EntryKey, raw: &Value) -> bool {
        self.running.get(key).is_some_and(|build| build.raw == *raw)
    }

    /// Builds an entry. Must be called in a Tokio runtime.
    pub(super) fn start(
        &mut self,
        key: EntryKey,
        raw: Value,
        options: Arc<RestOptions>,
        client: RestClient,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let finished = self.finished.clone();
        let (own_key, own_raw) = (key.clone(), raw.clone());
        let task = async move {
            let built = build(key.0, &key.1, &raw, &options, &client);
            let built = AssertUnwindSafe(built).catch_unwind().await;
            let outcome = built.unwrap_or_else(|_| {
                let problem = "it cannot be built; report this as a bug".to_owned();
                BuildOutcome::without_document(Err(problem))
            });
            // Without a receiver the provider is gone.
            let _ = finished.send(FinishedBuild { id, key, raw, outcome }).await;
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        self.running.insert(own_key, RunningBuild { id, raw: own_raw, _task: task });
        self.publish_count();
    }

    /// Removes a finished build from the running ones. Returns `false` if it is outdated.
    pub(super) fn finish(&mut self, build: &FinishedBuild) -> bool {
        if self.running.get(&build.key).is_none_or(|running| running.id != build.id) {
            return false;
        }
        self.running.remove(&build.key);
        true
    }

    /// Publishes the number of running builds. The results of the others are in use.
    pub(super) fn publish_count(&self) {
        let count = self.running.len();
        self.count.send_if_modified(|known| std::mem::replace(known, count) != count);
    }
}
