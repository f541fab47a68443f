//! Operations on working memory: save, get, delete, list and search.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use rockbot_contracts::{TaskId, ToolCallId};
use rockbot_store::{Document, DocumentStore, Expected, PutOutcome, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;

use super::{
    address::{Access, Address, MemoryOwner, Place, Space},
    error::WorkingMemoryError,
    label::Label,
    search::{MemoryEntry, MemoryHit, MemorySearch, rank},
};

/// The maximum number of attempts when other processes change the same entry.
const ATTEMPTS: usize = 8;

/// Limits concurrent searches of the process: each may load all entries of an agent.
static SEARCH_PERMITS: Semaphore = Semaphore::const_new(1);

const MAX_TAGS: usize = 16;
const MAX_TAG_BYTES: usize = 64;

/// Limits of working memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingMemoryLimits {
    /// The maximum size of an entry, in bytes. Default: 1 MiB; a store accepts up to 4 MiB.
    pub entry_bytes: usize,
    /// The maximum number of entries of a conversation, and of those shared by an agent's conversations.
    /// Concurrent processes may each exceed it by one. Default: 500.
    pub entries: usize,
    /// The maximum size of the same entries, in bytes. Default: 32 MiB.
    pub bytes: u64,
    /// The default time to live of an entry. Default: one hour.
    pub ttl: Duration,
    /// The maximum time to live of an entry. Default: seven days.
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

/// Options of a save.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// The time to live, up to [`WorkingMemoryLimits::max_ttl`].
    pub ttl: Option<Duration>,
    /// The category.
    pub category: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
}

impl SaveOptions {
    /// Creates options with a time to live.
    #[must_use]
    pub fn with_ttl(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..Self::default() }
    }
}

/// Temporary entries of agents, in a store that their processes share.
///
/// Every operation is on behalf of a [`MemoryOwner`]. A key without a slash is below
/// `session/{sessionId}` and belongs to the conversation. A key with a slash is absolute, and shared by
/// all conversations of the agent unless it starts with `session/{sessionId}/`. Entries of other agents
/// and conversations are not accessible. Keys below `subagent/{task}/` belong to the conversation that
/// started the sub-agent: it and that sub-agent write there, and its other sub-agents read. A namespace
/// consists of whole segments: `a/b` contains `a/b/c` but not `a/bc`.
#[derive(Clone)]
pub struct WorkingMemory {
    store: Arc<dyn Store>,
    limits: WorkingMemoryLimits,
    /// Held from the check of the limits until the write, so that concurrent calls of this process respect
    /// the limits.
    write_lock: Arc<Mutex<()>>,
}

impl WorkingMemory {
    /// Creates working memory in a store, with the default limits.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_limits(store, WorkingMemoryLimits::default())
    }

    /// Creates working memory in a store.
    #[must_use]
    pub fn with_limits(store: Arc<dyn Store>, limits: WorkingMemoryLimits) -> Self {
        Self { store, limits, write_lock: Arc::default() }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &WorkingMemoryLimits {
        &self.limits
    }

    /// Saves data under a key, and returns the entry. Replaces an existing entry.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`]. An existing entry stays then, unless the store did not confirm the write.
    ///
    /// # Cancellation
    /// Dropping the future leaves the entry either saved or unchanged.
    pub async fn save(
        &self,
        owner: &MemoryOwner,
        key: &str,
        data: &str,
        options: SaveOptions,
    ) -> Result<MemoryEntry, WorkingMemoryError> {
        let address = owner.resolve(key)?;
        let place = self.locate(owner, &address, Access::Write).await?;
        let bytes = data.len();
        if bytes > self.limits.entry_bytes {
            return Err(WorkingMemoryError::TooLarge { bytes, limit: self.limits.entry_bytes });
        }
        validate_labels(&options)?;
        let _guard = self.write_lock.lock().await;
        let labels = self.labels(&place);
        let mut current = self.check_limits(&labels, &address, bytes as u64).await?;
        let ttl = options.ttl.unwrap_or(self.limits.ttl).min(self.limits.max_ttl);
        // The data is written first, under a new id, so that a visible label always has its data.
        let id = ToolCallId::generate().to_string();
        let contents = self.contents(&place);
        contents.put(&[&id], &data.to_owned(), Some(ttl), Expected::Absent).await?;
        let now = self.store.now().await?;
        let label = Label {
            data: id,
            bytes: bytes as u64,
            category: options.category,
            tags: options.tags,
            saved_at: now.as_millis(),
        };
        for _ in 0..ATTEMPTS {
            let expected =
                current.as_ref().map_or(Expected::Absent, |found| Expected::Version(found.version));
            match labels.put(&address.segments, &label, Some(ttl), expected).await? {
                PutOutcome::Done(_) => {
                    if let Some(replaced) = current {
                        discard(&contents, &replaced.value).await;
                    }
                    let key = owner.key(address.space, &address.segments);
                    return Ok(MemoryEntry::new(key, label, Some(now.after(ttl))));
                }
                PutOutcome::Conflict(found) => current = found,
            }
        }
        discard(&contents, &label).await;
        Err(WorkingMemoryError::Contended)
    }

    /// Returns the data under a key.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn get(
        &self,
        owner: &MemoryOwner,
        key: &str,
    ) -> Result<Option<String>, WorkingMemoryError> {
        Ok(self.get_with_category(owner, key).await?.map(|(data, _)| data))
    }

    /// Returns the data under a key, and the category of the entry.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub(super) async fn get_with_category(
        &self,
        owner: &MemoryOwner,
        key: &str,
    ) -> Result<Option<(String, Option<String>)>, WorkingMemoryError> {
        let address = owner.resolve(key)?;
        let place = self.locate(owner, &address, Access::Read).await?;
        let (labels, contents) = (self.labels(&place), self.contents(&place));
        for _ in 0..ATTEMPTS {
            let Some(label) = labels.get(&address.segments).await? else { return Ok(None) };
            if let Some(data) = contents.get(&[&label.value.data]).await? {
                return Ok(Some((data.value, label.value.category)));
            }
            // The entry was replaced or has expired meanwhile; the label is read again.
        }
        Err(WorkingMemoryError::Contended)
    }

    /// Deletes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn delete(&self, owner: &MemoryOwner, key: &str) -> Result<bool, WorkingMemoryError> {
        let address = owner.resolve(key)?;
        let place = self.locate(owner, &address, Access::Write).await?;
        let labels = self.labels(&place);
        for _ in 0..ATTEMPTS {
            let Some(found) = labels.get(&address.segments).await? else { return Ok(false) };
            if labels.remove(&address.segments, Expected::Version(found.version)).await? {
                discard(&self.contents(&place), &found.value).await;
                return Ok(true);
            }
        }
        Err(WorkingMemoryError::Contended)
    }

    /// Deletes the entries of a conversation, and those that it shares with its sub-agents.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`]. Some entries may be deleted then.
    pub async fn clear(&self, owner: &MemoryOwner) -> Result<(), WorkingMemoryError> {
        // What a sub-agent shares belongs to the conversation that started it.
        let has_whiteboards = TaskId::from_session(&owner.session).is_none();
        let whiteboards = has_whiteboards.then_some(Space::Whiteboard);
        for space in [Space::Session].into_iter().chain(whiteboards) {
            let place = Place { agent: &owner.agent, space, session: owner.session.clone() };
            let (labels, contents) = (self.labels(&place), self.contents(&place));
            for (segments, found) in labels.list::<&str>(&[], self.limits.entries * 2).await? {
                labels.remove(&segments, Expected::Anything).await?;
                discard(&contents, &found.value).await;
            }
        }
        Ok(())
    }

    /// Returns the entries of a namespace, or all of the owner, ordered by key.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn list(
        &self,
        owner: &MemoryOwner,
        namespace: Option<&str>,
    ) -> Result<Vec<MemoryEntry>, WorkingMemoryError> {
        let addresses = match namespace {
            Some(namespace) => vec![owner.resolve_namespace(namespace)?],
            None => Space::ALL.map(|space| Address { space, segments: Vec::new() }).to_vec(),
        };
        let mut entries = Vec::new();
        for address in addresses {
            let place = self.locate(owner, &address, Access::Read).await?;
            let Address { space, segments } = address;
            let found = self.labels(&place).list(&segments, self.limits.entries).await?;
            entries.extend(found.into_iter().map(
                |(segments, Document { value, expires_at, .. })| {
                    MemoryEntry::new(owner.key(space, &segments), value, expires_at)
                },
            ));
        }
        Ok(entries)
    }

    /// Returns the best matches of a search, best first.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn search(
        &self,
        owner: &MemoryOwner,
        search: MemorySearch,
    ) -> Result<Vec<MemoryHit>, WorkingMemoryError> {
        // The semaphore is never closed.
        let permit = SEARCH_PERMITS.acquire().await;
        let mut candidates = Vec::new();
        for space in Space::ALL {
            let all = Address { space, segments: Vec::new() };
            let place = self.locate(owner, &all, Access::Read).await?;
            let mut labels = self.labels(&place).list::<&str>(&[], self.limits.entries).await?;
            labels.retain(|(_, label)| search.accepts(&label.value));
            let mut data = self.read_data(&place, &labels, search.is_filtered()).await?;
            for (segments, Document { value: label, expires_at, .. }) in labels {
                let text = data.remove(&label.data).unwrap_or_default();
                let key = owner.key(space, &segments);
                candidates.push((MemoryEntry::new(key, label, expires_at), text));
            }
        }
        // Ranking may process many megabytes.
        let ranked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            rank(&candidates, &search)
        });
        let ranked = ranked.await;
        ranked.map_err(|_| {
            let reason = "the search panicked; report this as a bug".to_owned();
            WorkingMemoryError::Store(StoreError::Unusable { reason })
        })
    }

    /// Returns the data of these labels, by id. Reads them one by one if `individually` is set.
    async fn read_data(
        &self,
        place: &Place<'_>,
        labels: &[(Vec<String>, Document<Label>)],
        individually: bool,
    ) -> Result<HashMap<String, String>, WorkingMemoryError> {
        let contents = self.contents(place);
        let mut data = HashMap::new();
        if individually {
            for (_, label) in labels {
                let id = &label.value.data;
                let found = contents.get(&[id]).await?;
                data.extend(found.map(|found| (id.clone(), found.value)));
            }
            return Ok(data);
        }
        let limit = self.limits.entries.saturating_mul(2);
        let found = contents.list::<&str>(&[], limit).await?.into_iter();
        data.extend(
            found.filter_map(|(name, found)| Some((name.into_iter().next()?, found.value))),
        );
        Ok(data)
    }

    /// Checks the limits for an entry of `bytes` at `address`, and returns the current entry there.
    async fn check_limits(
        &self,
        labels: &DocumentStore<Label>,
        address: &Address,
        bytes: u64,
    ) -> Result<Option<Document<Label>>, WorkingMemoryError> {
        let mut others = labels.list::<&str>(&[], self.limits.entries + 1).await?;
        let position = others.iter().position(|(segments, _)| *segments == address.segments);
        let current = position.map(|index| others.swap_remove(index).1);
        let full = |reason: String| Err(WorkingMemoryError::Full { reason });
        if others.len() >= self.limits.entries {
            return full(format!(
                "it has {} entries, the limit is {}",
                others.len(),
                self.limits.entries
            ));
        }
        let used: u64 = others.iter().map(|(_, label)| label.value.bytes).sum();
        if used + bytes > self.limits.bytes {
            let free = self.limits.bytes.saturating_sub(used);
            return full(format!("{bytes} bytes exceed the {free} free bytes"));
        }
        Ok(current)
    }

    /// Checks that the owner may use an address, and returns the owner of the entries there.
    async fn locate<'a>(
        &self,
        owner: &'a MemoryOwner,
        address: &Address,
        access: Access,
    ) -> Result<Place<'a>, WorkingMemoryError> {
        let session = match address.space {
            Space::Session | Space::Shared => owner.session.clone(),
            Space::Whiteboard => {
                let root = self.root(owner).await?;
                self.check_access(owner, &root, address, access).await?;
                root
            }
        };
        Ok(Place { agent: &owner.agent, space: address.space, session })
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn labels(&self, place: &Place<'_>) -> DocumentStore<Label> {
        self.documents("working-memory", place)
    }

    fn contents(&self, place: &Place<'_>) -> DocumentStore<String> {
        self.documents("working-memory-data", place)
    }

    fn documents<T>(&self, kind: &str, place: &Place<'_>) -> DocumentStore<T>
    where
        T: Serialize + for<'de> Deserialize<'de>,
    {
        let (agent, session) = (place.agent.as_str(), place.session.as_str());
        let store = self.store.clone();
        match place.space {
            Space::Session => DocumentStore::new(store, [kind, agent, "session", session]),
            Space::Shared => DocumentStore::new(store, [kind, agent, "shared"]),
            Space::Whiteboard => DocumentStore::new(store, [kind, agent, "subagents", session]),
        }
    }
}

/// Removes data without a label. Data that cannot be removed expires.
async fn discard(contents: &DocumentStore<String>, label: &Label) {
    if let Err(error) = contents.remove(&[&label.data], Expected::Anything).await {
        warn!(%error, bytes = label.bytes, "removal of replaced data failed; it expires later");
    }
}

fn validate_labels(options: &SaveOptions) -> Result<(), WorkingMemoryError> {
    let SaveOptions { category, tags, .. } = options;
    let is_invalid = |text: &String| {
        text.trim().is_empty() || text.len() > MAX_TAG_BYTES || text.chars().any(char::is_control)
    };
    let label = |reason: String| Err(WorkingMemoryError::Label { reason });
    if category.iter().chain(tags).any(is_invalid) {
        return label(format!(
            "a category or tag must have 1 to {MAX_TAG_BYTES} bytes, without control characters"
        ));
    }
    if tags.len() > MAX_TAGS {
        return label(format!("there are {} tags, the limit is {MAX_TAGS}", tags.len()));
    }
    Ok(())
}

impl fmt::Debug for WorkingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkingMemory").field("limits", &self.limits).finish_non_exhaustive()
    }
}
