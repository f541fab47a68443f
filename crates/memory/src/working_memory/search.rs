//! Entries and their search.

use rockbot_store::Timestamp;

use super::label::Label;
use crate::{excerpt::excerpt, ranker::Ranker};

/// The length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 240;

/// An entry, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The absolute key.
    pub key: String,
    /// The size of the data, in bytes.
    pub bytes: u64,
    /// The category.
    pub category: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
    /// The time of the save.
    pub saved_at: Timestamp,
    /// The expiry time.
    pub expires_at: Option<Timestamp>,
}

impl MemoryEntry {
    pub(super) fn new(key: String, label: Label, expires_at: Option<Timestamp>) -> Self {
        let Label { bytes, category, tags, saved_at, .. } = label;
        let saved_at = Timestamp::from_millis(saved_at);
        Self { key, bytes, category, tags, saved_at, expires_at }
    }
}

/// A search in working memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySearch {
    /// The words to find in the key, the category, the tags or the data.
    pub query: String,
    /// Restricts the search to this category.
    pub category: Option<String>,
    /// Restricts the search to entries with all of these tags.
    pub tags: Vec<String>,
    /// The maximum number of hits.
    pub limit: usize,
}

impl MemorySearch {
    /// Returns whether the search is restricted by category or tags.
    pub(super) fn is_filtered(&self) -> bool {
        self.category.is_some() || !self.tags.is_empty()
    }

    /// Returns whether an entry has the required category and tags.
    pub(super) fn accepts(&self, label: &Label) -> bool {
        (self.category.is_none() || label.category == self.category)
            && self.tags.iter().all(|tag| label.tags.contains(tag))
    }
}

/// A search result.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    /// The entry.
    pub entry: MemoryEntry,
    /// The score relative to the best hit, which has 1.
    pub relevance: f64,
    /// The matching passage of the data.
    pub excerpt: String,
}

/// Ranks `candidates`, each with its data. Omits those that do not match.
pub(super) fn rank(candidates: &[(MemoryEntry, String)], search: &MemorySearch) -> Vec<MemoryHit> {
    let text = |(entry, data): &(MemoryEntry, String)| {
        let category = entry.category.as_deref().unwrap_or_default();
        format!("{} {category} {} {data}", entry.key, entry.tags.join(" "))
    };
    let found = Ranker::from_texts(candidates.iter().map(text)).search(&search.query, search.limit);
    let best = found.first().map_or(1.0, |best| best.score);
    found
        .into_iter()
        .map(|hit| {
            let (entry, data) = &candidates[hit.text];
            let excerpt = excerpt(data, &search.query, EXCERPT_CHARS);
            MemoryHit { entry: entry.clone(), relevance: hit.score / best, excerpt }
        })
        .collect()
}
