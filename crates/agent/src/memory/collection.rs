//! Searchable entries of one kind, kept by agent.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::AgentName;
use rockbot_memory::Ranker;
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Version};
use rockbot_tools::ToolFailure;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time::Instant};
use tracing::warn;

/// Maximum age of cached entries. Entries are reloaded even without a recorded change, because a process
/// may have died between a change and its record.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Maximum number of attempts of a change that conflicts with other processes.
pub(super) const ATTEMPTS: usize = 8;

/// A value in a collection.
pub(super) trait CollectionItem:
    Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Name of the collection in the store and in messages.
    const NAME: &'static str;

    /// Returns the text that searches match.
    fn search_text(&self) -> String;
}

/// The entries of each agent, at most `capacity` of one agent.
pub(super) struct Collection<T> {
    store: Arc<dyn Store>,
    capacity: usize,
    cache: Mutex<HashMap<AgentName, Arc<Entries<T>>>>,
    /// Held from the check of the capacity until the write.
    writing: tokio::sync::Mutex<()>,
}

/// The entries of an agent at the time of loading.
pub(super) struct Entries<T> {
    /// By name, in alphabetical order.
    pub(super) all: Vec<(String, Document<T>)>,
    /// Built by the first search.
    index: OnceLock<Ranker>,
    /// The last change that the entries include.
    after: Option<Version>,
    read_at: Instant,
}

impl<T: CollectionItem> Collection<T> {
    pub(super) fn new(store: Arc<dyn Store>, capacity: usize) -> Self {
        Self { store, capacity, cache: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(super) async fn get(
        &self,
        agent: &AgentName,
        name: &str,
    ) -> Result<Option<Document<T>>, DocumentError> {
        self.shelf(agent).get(&[name]).await
    }

    /// Writes an entry if its version is as expected and the capacity allows it.
    pub(super) async fn put(
        &self,
        agent: &AgentName,
        name: &str,
        value: &T,
        expected: Expected,
    ) -> Result<PutOutcome<T>, ToolFailure> {
        self.put_if(agent, name, value, expected, |_| Ok(())).await
    }

    /// Like [`put`](Self::put), if the present entries pass the check. Writes of one process are
    /// serialized, so the limits hold for concurrent calls.
    pub(super) async fn put_if(
        &self,
        agent: &AgentName,
        name: &str,
        value: &T,
        expected: Expected,
        check: impl FnOnce(&Entries<T>) -> Result<(), ToolFailure> + Send,
    ) -> Result<PutOutcome<T>, ToolFailure> {
        let _writing = self.writing.lock().await;
        if expected == Expected::Absent {
            let entries = self.entries(agent).await?;
            check(&entries)?;
            let count = entries.all.len();
            if count >= self.capacity && entries.all.iter().all(|(taken, _)| taken != name) {
                return Err(ToolFailure::invalid(format!(
                    "there are {count} {}, at most {}; no entry was dropped; delete what \
                     is no longer needed",
                    T::NAME,
                    self.capacity
                )));
            }
        }
        let placed = self.shelf(agent).put(&[name], value, None, expected).await?;
        if matches!(placed, PutOutcome::Done(_)) {
            self.changed(agent).await;
        }
        Ok(placed)
    }

    /// Removes an entry. Returns `true` if it existed.
    pub(super) async fn remove(&self, agent: &AgentName, name: &str) -> Result<bool, ToolFailure> {
        let removed = self.shelf(agent).remove(&[name], Expected::Anything).await?;
        if removed {
            self.changed(agent).await;
        }
        Ok(removed)
    }

    /// Returns all entries of an agent, from the cache unless an entry has changed.
    pub(super) async fn entries(
        &self,
        agent: &AgentName,
    ) -> Result<Arc<Entries<T>>, DocumentError> {
        // Read before the list, so that a concurrent change is noticed at the next load.
        let after = self.changes(agent).get::<&str>(&["last"]).await?.map(|last| last.version);
        let known = self.cache().get(agent).cloned();
        if let Some(known) = known.filter(|known| known.after == after && known.is_fresh()) {
            return Ok(known);
        }
        let listed = self.shelf(agent).list::<&str>(&[], self.capacity.saturating_mul(2)).await?;
        let all: Vec<_> = listed
            .into_iter()
            .map(|(name, document)| (name.into_iter().next().unwrap_or_default(), document))
            .collect();
        let (index, read_at) = (OnceLock::new(), Instant::now());
        let entries = Arc::new(Entries { all, index, after, read_at });
        self.cache().insert(agent.clone(), entries.clone());
        Ok(entries)
    }

    /// Records a change. If that fails, the change itself is stored, and other processes see it within a
    /// minute.
    async fn changed(&self, agent: &AgentName) {
        self.cache().remove(agent);
        if let Err(error) = self.changes(agent).put(&["last"], &(), None, Expected::Anything).await
        {
            warn!(%error, what = T::NAME, "change record failed; visible elsewhere within a minute");
        }
    }

    fn shelf(&self, agent: &AgentName) -> DocumentStore<T> {
        DocumentStore::new(self.store.clone(), [T::NAME, agent.as_str()])
    }

    fn changes(&self, agent: &AgentName) -> DocumentStore<()> {
        DocumentStore::new(self.store.clone(), ["changes", T::NAME, agent.as_str()])
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<AgentName, Arc<Entries<T>>>> {
        self.cache.lock()
    }
}

impl<T: CollectionItem> Entries<T> {
    fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < MAX_AGE
    }

    /// Returns the entries that match a query best, best first.
    pub(super) async fn search(
        self: &Arc<Self>,
        query: &str,
        limit: usize,
    ) -> Vec<&(String, Document<T>)> {
        if self.index.get().is_none() {
            let entries = self.clone();
            // Building the index may read megabytes.
            let _ = spawn_blocking(move || entries.index().len()).await;
        }
        let found = self.index().search(query, limit);
        found.into_iter().filter_map(|hit| self.all.get(hit.text)).collect()
    }

    fn index(&self) -> &Ranker {
        let text = |(_, document): &(String, Document<T>)| document.value.search_text();
        self.index.get_or_init(|| Ranker::from_texts(self.all.iter().map(text)))
    }
}

/// Joins the words of a text with single spaces, so that it cannot forge further lines of a list.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Derives a short id from a text, ignoring case and white space.
pub(super) fn content_id(text: &str) -> String {
    let plain = one_line(text).to_lowercase();
    Sha256::digest(plain).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Rejects a text that is empty or too long.
pub(super) fn check_text(what: &str, text: &str, max_bytes: usize) -> Result<(), ToolFailure> {
    match text.len() {
        _ if text.trim().is_empty() => Err(ToolFailure::invalid(format!("{what} is empty"))),
        bytes if bytes > max_bytes => Err(ToolFailure::invalid(format!(
            "{what} has {bytes} bytes, at most {max_bytes}; nothing was saved; shorten it"
        ))),
        _ => Ok(()),
    }
}
