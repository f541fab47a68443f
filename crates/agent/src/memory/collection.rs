//! Entries of one kind that agents keep, found by words.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rockbot_contracts::AgentName;
use rockbot_memory::Ranker;
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Version};
use rockbot_tools::ToolFailure;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time::Instant};
use tracing::warn;

/// After this time entries are read again although nobody said that they changed: a process may
/// have died between a change and saying so.
const FRESH: Duration = Duration::from_secs(60);

/// How often a change is tried again that another process got in the way of.
pub(super) const ATTEMPTS: usize = 8;

/// What is kept in a collection.
pub(super) trait Kept: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What several of them are called.
    const NAME: &'static str;

    /// What it is found by.
    fn words(&self) -> String;
}

/// The entries of each agent, at most so many of one.
pub(super) struct Collection<T> {
    store: Arc<dyn Store>,
    most: usize,
    seen: Mutex<HashMap<AgentName, Arc<Entries<T>>>>,
    /// Held from a look at how much there is until what was looked for is written.
    writing: tokio::sync::Mutex<()>,
}

/// What an agent keeps, as it was when it was looked at.
pub(super) struct Entries<T> {
    /// By name, in order of the names.
    pub(super) all: Vec<(String, Document<T>)>,
    /// Made for the first who searches.
    index: OnceLock<Ranker>,
    /// Which change it was read after.
    after: Option<Version>,
    read_at: Instant,
}

impl<T: Kept> Collection<T> {
    pub(super) fn new(store: Arc<dyn Store>, most: usize) -> Self {
        Self { store, most, seen: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(super) async fn get(
        &self,
        agent: &AgentName,
        name: &str,
    ) -> Result<Option<Document<T>>, DocumentError> {
        self.shelf(agent).get(&[name]).await
    }

    /// Puts an entry under a name if that is as expected and there is room.
    pub(super) async fn put(
        &self,
        agent: &AgentName,
        name: &str,
        value: &T,
        expected: Expected,
    ) -> Result<PutOutcome<T>, ToolFailure> {
        self.put_if(agent, name, value, expected, |_| Ok(())).await
    }

    /// The same, if the entries that are there pass the check. Of the puts of a process one looks
    /// and writes at a time, so limits hold for calls that come at once.
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
            if count >= self.most && entries.all.iter().all(|(taken, _)| taken != name) {
                return Err(ToolFailure::invalid(format!(
                    "there are {count} {}, at most {}; nothing was dropped to make room: delete \
                     what is no longer needed",
                    T::NAME,
                    self.most
                )));
            }
        }
        let placed = self.shelf(agent).put(&[name], value, None, expected).await?;
        if matches!(placed, PutOutcome::Done(_)) {
            self.changed(agent).await;
        }
        Ok(placed)
    }

    /// Takes the entry of a name away. Whether there was one.
    pub(super) async fn remove(&self, agent: &AgentName, name: &str) -> Result<bool, ToolFailure> {
        let removed = self.shelf(agent).remove(&[name], Expected::Anything).await?;
        if removed {
            self.changed(agent).await;
        }
        Ok(removed)
    }

    /// All entries of an agent. They are read again only after somebody changed one.
    pub(super) async fn entries(
        &self,
        agent: &AgentName,
    ) -> Result<Arc<Entries<T>>, DocumentError> {
        // First, so that a change that comes while the list is read is noticed the next time.
        let after = self.changes(agent).get::<&str>(&["last"]).await?.map(|last| last.version);
        let known = self.seen().get(agent).cloned();
        if let Some(known) = known.filter(|known| known.after == after && known.is_fresh()) {
            return Ok(known);
        }
        let listed = self.shelf(agent).list::<&str>(&[], self.most.saturating_mul(2)).await?;
        let all: Vec<_> = listed
            .into_iter()
            .map(|(name, document)| (name.into_iter().next().unwrap_or_default(), document))
            .collect();
        let (index, read_at) = (OnceLock::new(), Instant::now());
        let entries = Arc::new(Entries { all, index, after, read_at });
        self.seen().insert(agent.clone(), entries.clone());
        Ok(entries)
    }

    /// Says that there was a change. Where that fails, the change was made none the less, and other
    /// processes see it a minute later.
    async fn changed(&self, agent: &AgentName) {
        self.seen().remove(agent);
        if let Err(error) = self.changes(agent).put(&["last"], &(), None, Expected::Anything).await
        {
            warn!(%error, what = T::NAME, "others will see a change late");
        }
    }

    fn shelf(&self, agent: &AgentName) -> DocumentStore<T> {
        DocumentStore::new(self.store.clone(), [T::NAME, agent.as_str()])
    }

    fn changes(&self, agent: &AgentName) -> DocumentStore<()> {
        DocumentStore::new(self.store.clone(), ["changes", T::NAME, agent.as_str()])
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<AgentName, Arc<Entries<T>>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Kept> Entries<T> {
    fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < FRESH
    }

    /// The entries that fit a query best, the best first.
    pub(super) async fn fitting(
        self: &Arc<Self>,
        query: &str,
        most: usize,
    ) -> Vec<&(String, Document<T>)> {
        if self.index.get().is_none() {
            let entries = self.clone();
            // Megabytes may be read for their words.
            let _ = spawn_blocking(move || entries.index().len()).await;
        }
        let found = self.index().search(query, most);
        found.into_iter().filter_map(|hit| self.all.get(hit.text)).collect()
    }

    fn index(&self) -> &Ranker {
        let words = |(_, document): &(String, Document<T>)| document.value.words();
        self.index.get_or_init(|| Ranker::from_texts(self.all.iter().map(words)))
    }
}

/// A short name made of a text: the same for the same text, whatever its case and white space.
pub(super) fn name_of(text: &str) -> String {
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    Sha256::digest(plain).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Refuses a text that is empty or too long.
pub(super) fn check_text(what: &str, text: &str, most: usize) -> Result<(), ToolFailure> {
    match text.len() {
        _ if text.trim().is_empty() => Err(ToolFailure::invalid(format!("{what} is empty"))),
        bytes if bytes > most => Err(ToolFailure::invalid(format!(
            "{what} has {bytes} bytes, at most {most}; nothing was saved: say it in fewer words"
        ))),
        _ => Ok(()),
    }
}
