//! What working memory does: save, get, delete, list and search.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use rockbot_contracts::ToolCallId;
use rockbot_store::{Document, Expected, Placed, Shelf, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;

use super::{
    address::{Address, MemoryOwner, Space},
    error::WorkingMemoryError,
    found::{MemoryEntry, MemoryHit, MemorySearch, ranked},
    label::Label,
};

/// How often a change is tried again that another process got in the way of.
const ATTEMPTS: usize = 8;

/// Searches that run at once in a process: each may hold all that an agent put aside.
static SEARCHES: Semaphore = Semaphore::const_new(1);

const MAX_TAGS: usize = 16;
const MAX_TAG_BYTES: usize = 64;

/// How much may be put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingMemoryLimits {
    /// Most bytes of one entry. Default 1 MiB; a store keeps no more than 4 MiB.
    pub entry_bytes: usize,
    /// Most entries of a conversation, and of what all conversations of an agent share. Processes
    /// that save at the same time may pass it by one each. Default 500.
    pub entries: usize,
    /// Most bytes of the same. Default 32 MiB.
    pub bytes: u64,
    /// How long an entry is kept that nobody said a time for. Default one hour.
    pub ttl: Duration,
    /// The longest that an entry is kept. Default seven days.
    pub max_ttl: Duration,
}

impl Default for WorkingMemoryLimits {
    fn default() -> Self {
        Self {
            entry_bytes: 1024 * 1024,
            entries: 500,
            bytes: 32 * 1024 * 1024,
            ttl: Duration::from_secs(60 * 60),
            max_ttl: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// What is said of an entry when it is saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saving {
    /// How long it is kept, at most [`WorkingMemoryLimits::max_ttl`].
    pub ttl: Option<Duration>,
    /// What kind of thing it is.
    pub category: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
}

impl Saving {
    /// Kept for this long.
    #[must_use]
    pub fn for_a_time(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..Self::default() }
    }
}

/// What agents put aside, in a store that their processes share.
///
/// Everything is asked for on behalf of a [`MemoryOwner`]. A key without a slash stands below
/// `session/{sessionId}` and belongs to the conversation; one with a slash is absolute, and belongs
/// to all conversations of the agent unless it begins with `session/{sessionId}/`. Nobody reaches
/// what belongs to another agent or conversation, and a namespace holds whole segments: `a/b` holds
/// `a/b/c` and not `a/bc`.
#[derive(Clone)]
pub struct WorkingMemory {
    store: Arc<dyn Store>,
    limits: WorkingMemoryLimits,
    /// Held from a look at how much there is until what was looked for is written, so that limits
    /// hold for calls that come at once.
    writing: Arc<Mutex<()>>,
}

impl WorkingMemory {
    /// Working memory in this store, with the default limits.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_limits(store, WorkingMemoryLimits::default())
    }

    /// Working memory in this store.
    #[must_use]
    pub fn with_limits(store: Arc<dyn Store>, limits: WorkingMemoryLimits) -> Self {
        Self { store, limits, writing: Arc::default() }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &WorkingMemoryLimits {
        &self.limits
    }

    /// Saves data under a key, in place of what is there, and returns what can be told of it.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`]; what was there stays then, unless the store did not confirm.
    ///
    /// # Cancellation
    /// Dropping the future leaves the entry either saved or as it was.
    pub async fn save(
        &self,
        owner: &MemoryOwner,
        key: &str,
        data: &str,
        saving: Saving,
    ) -> Result<MemoryEntry, WorkingMemoryError> {
        let address = owner.address(key)?;
        let bytes = data.len();
        if bytes > self.limits.entry_bytes {
            return Err(WorkingMemoryError::TooLarge { bytes, limit: self.limits.entry_bytes });
        }
        check_words(&saving)?;
        let _writing = self.writing.lock().await;
        let labels = self.labels(owner, address.space);
        let mut present = self.make_room(&labels, &address, bytes as u64).await?;
        let ttl = saving.ttl.unwrap_or(self.limits.ttl).min(self.limits.max_ttl);
        // The data first, under a name of its own: whoever sees the label finds what it tells of.
        let id = ToolCallId::generate().to_string();
        let contents = self.contents(owner, address.space);
        contents.put(&[&id], &data.to_owned(), Some(ttl), Expected::Absent).await?;
        let now = self.store.now().await?;
        let label = Label {
            data: id,
            bytes: bytes as u64,
            category: saving.category,
            tags: saving.tags,
            saved_at: now.as_millis(),
        };
        for _ in 0..ATTEMPTS {
            let expected =
                present.as_ref().map_or(Expected::Absent, |found| Expected::Version(found.version));
            match labels.put(&address.segments, &label, Some(ttl), expected).await? {
                Placed::Done(_) => {
                    if let Some(replaced) = present {
                        discard(&contents, &replaced.value).await;
                    }
                    let key = owner.key(address.space, &address.segments);
                    return Ok(MemoryEntry::new(key, label, Some(now.after(ttl))));
                }
                Placed::Conflict(found) => present = found,
            }
        }
        discard(&contents, &label).await;
        Err(WorkingMemoryError::Contended)
    }

    /// The data under a key, if there is any.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn get(
        &self,
        owner: &MemoryOwner,
        key: &str,
    ) -> Result<Option<String>, WorkingMemoryError> {
        let address = owner.address(key)?;
        let labels = self.labels(owner, address.space);
        let contents = self.contents(owner, address.space);
        for _ in 0..ATTEMPTS {
            let Some(label) = labels.get(&address.segments).await? else { return Ok(None) };
            if let Some(data) = contents.get(&[&label.value.data]).await? {
                return Ok(Some(data.value));
            }
            // It was replaced or expired in between; the label says which.
        }
        Err(WorkingMemoryError::Contended)
    }

    /// Deletes what is under a key. Whether there was anything.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn delete(&self, owner: &MemoryOwner, key: &str) -> Result<bool, WorkingMemoryError> {
        let address = owner.address(key)?;
        let labels = self.labels(owner, address.space);
        for _ in 0..ATTEMPTS {
            let Some(found) = labels.get(&address.segments).await? else { return Ok(false) };
            if labels.remove(&address.segments, Expected::Version(found.version)).await? {
                discard(&self.contents(owner, address.space), &found.value).await;
                return Ok(true);
            }
        }
        Err(WorkingMemoryError::Contended)
    }

    /// What is there, in order of the keys: of one namespace, or all that the owner reaches.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn list(
        &self,
        owner: &MemoryOwner,
        namespace: Option<&str>,
    ) -> Result<Vec<MemoryEntry>, WorkingMemoryError> {
        let addresses = match namespace {
            Some(namespace) => vec![owner.below(namespace)?],
            None => Space::ALL.map(|space| Address { space, segments: Vec::new() }).to_vec(),
        };
        let mut entries = Vec::new();
        for Address { space, segments } in addresses {
            let found = self.labels(owner, space).list(&segments, self.limits.entries).await?;
            entries.extend(found.into_iter().map(
                |(segments, Document { value, expires_at, .. })| {
                    MemoryEntry::new(owner.key(space, &segments), value, expires_at)
                },
            ));
        }
        Ok(entries)
    }

    /// What fits a search best, the best first, each with the place in its data that fits.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn search(
        &self,
        owner: &MemoryOwner,
        search: MemorySearch,
    ) -> Result<Vec<MemoryHit>, WorkingMemoryError> {
        // It is never closed.
        let turn = SEARCHES.acquire().await;
        let mut candidates = Vec::new();
        for space in Space::ALL {
            let mut labels =
                self.labels(owner, space).list::<&str>(&[], self.limits.entries).await?;
            labels.retain(|(_, label)| search.wants(&label.value));
            let mut data = self.data_of(owner, space, &labels, search.is_narrow()).await?;
            for (segments, Document { value: label, expires_at, .. }) in labels {
                let text = data.remove(&label.data).unwrap_or_default();
                let key = owner.key(space, &segments);
                candidates.push((MemoryEntry::new(key, label, expires_at), text));
            }
        }
        // Many megabytes may be read for their words.
        let ranked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            ranked(&candidates, &search)
        });
        let ranked = ranked.await;
        ranked.map_err(|_| {
            let reason = "the search broke off; this is a bug".to_owned();
            WorkingMemoryError::Store(StoreError::Unusable { reason })
        })
    }

    /// The data of these labels, by where it is: each by itself if they are `few`.
    async fn data_of(
        &self,
        owner: &MemoryOwner,
        space: Space,
        labels: &[(Vec<String>, Document<Label>)],
        few: bool,
    ) -> Result<HashMap<String, String>, WorkingMemoryError> {
        let contents = self.contents(owner, space);
        let mut data = HashMap::new();
        if few {
            for (_, label) in labels {
                let id = &label.value.data;
                let found = contents.get(&[id]).await?;
                data.extend(found.map(|found| (id.clone(), found.value)));
            }
            return Ok(data);
        }
        let most = self.limits.entries.saturating_mul(2);
        let found = contents.list::<&str>(&[], most).await?.into_iter();
        data.extend(
            found.filter_map(|(name, found)| Some((name.into_iter().next()?, found.value))),
        );
        Ok(data)
    }

    /// What is under the key now, if there is room for `bytes` in its place.
    async fn make_room(
        &self,
        labels: &Shelf<Label>,
        address: &Address,
        bytes: u64,
    ) -> Result<Option<Document<Label>>, WorkingMemoryError> {
        let mut others = labels.list::<&str>(&[], self.limits.entries + 1).await?;
        let own = others.iter().position(|(segments, _)| *segments == address.segments);
        let present = own.map(|at| others.swap_remove(at).1);
        let full = |reason: String| Err(WorkingMemoryError::Full { reason });
        if others.len() >= self.limits.entries {
            return full(format!(
                "it holds {} entries, at most {}",
                others.len(),
                self.limits.entries
            ));
        }
        let taken: u64 = others.iter().map(|(_, label)| label.value.bytes).sum();
        if taken + bytes > self.limits.bytes {
            let free = self.limits.bytes.saturating_sub(taken);
            return full(format!("{bytes} bytes are more than the {free} that are free"));
        }
        Ok(present)
    }

    fn labels(&self, owner: &MemoryOwner, space: Space) -> Shelf<Label> {
        self.shelf("working-memory", owner, space)
    }

    fn contents(&self, owner: &MemoryOwner, space: Space) -> Shelf<String> {
        self.shelf("working-memory-data", owner, space)
    }

    fn shelf<T>(&self, kind: &str, owner: &MemoryOwner, space: Space) -> Shelf<T>
    where
        T: Serialize + for<'de> Deserialize<'de>,
    {
        let (agent, session) = (owner.agent.as_str(), owner.session.as_str());
        match space {
            Space::Session => Shelf::new(self.store.clone(), [kind, agent, "session", session]),
            Space::Shared => Shelf::new(self.store.clone(), [kind, agent, "shared"]),
        }
    }
}

/// Removes data that no label tells of any more. Where that fails it goes when its time is over.
async fn discard(contents: &Shelf<String>, label: &Label) {
    if let Err(error) = contents.remove(&[&label.data], Expected::Anything).await {
        warn!(%error, bytes = label.bytes, "old data of working memory stays until it expires");
    }
}

fn check_words(saving: &Saving) -> Result<(), WorkingMemoryError> {
    let Saving { category, tags, .. } = saving;
    let is_odd = |word: &String| {
        word.trim().is_empty() || word.len() > MAX_TAG_BYTES || word.chars().any(char::is_control)
    };
    let label = |reason: String| Err(WorkingMemoryError::Label { reason });
    if category.iter().chain(tags).any(is_odd) {
        return label(format!("a category or tag has 1 to {MAX_TAG_BYTES} bytes on one line"));
    }
    if tags.len() > MAX_TAGS {
        return label(format!("there are {} tags, at most {MAX_TAGS}", tags.len()));
    }
    Ok(())
}

impl fmt::Debug for WorkingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkingMemory").field("limits", &self.limits).finish_non_exhaustive()
    }
}
