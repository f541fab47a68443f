//! What is in working memory, and what fits a search.

use rockbot_store::Timestamp;

use super::label::Label;
use crate::{excerpt::excerpt, ranker::Ranker};

/// Characters of the excerpt of a hit.
const EXCERPT_CHARS: usize = 240;

/// An entry, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Its key in full.
    pub key: String,
    /// Size of its data.
    pub bytes: u64,
    /// What kind of thing it is.
    pub category: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// When it was saved.
    pub saved_at: Timestamp,
    /// When it is gone.
    pub expires_at: Option<Timestamp>,
}

impl MemoryEntry {
    pub(super) fn new(key: String, label: Label, expires_at: Option<Timestamp>) -> Self {
        let Label { bytes, category, tags, saved_at, .. } = label;
        let saved_at = Timestamp::from_millis(saved_at);
        Self { key, bytes, category, tags, saved_at, expires_at }
    }
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySearch {
    /// Words of the key, the category, the tags or the data.
    pub query: String,
    /// Only entries of this category.
    pub category: Option<String>,
    /// Only entries with all of these tags.
    pub tags: Vec<String>,
    /// Most hits.
    pub most: usize,
}

impl MemorySearch {
    /// Whether it asks for a category or tags.
    pub(super) fn is_narrow(&self) -> bool {
        self.category.is_some() || !self.tags.is_empty()
    }

    /// Whether an entry has the category and the tags that are asked for.
    pub(super) fn wants(&self, label: &Label) -> bool {
        (self.category.is_none() || label.category == self.category)
            && self.tags.iter().all(|tag| label.tags.contains(tag))
    }
}

/// An entry that fits a search.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    /// The entry.
    pub entry: MemoryEntry,
    /// How well it fits, 1 for the best.
    pub relevance: f64,
    /// The place in its data that fits.
    pub excerpt: String,
}

/// Those of `candidates`, each with its data, that fit.
pub(super) fn ranked(
    candidates: &[(MemoryEntry, String)],
    search: &MemorySearch,
) -> Vec<MemoryHit> {
    let text = |(entry, data): &(MemoryEntry, String)| {
        let category = entry.category.as_deref().unwrap_or_default();
        format!("{} {category} {} {data}", entry.key, entry.tags.join(" "))
    };
    let found = Ranker::over(candidates.iter().map(text)).search(&search.query, search.most);
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
