//! How a long result is stored.

use std::time::Duration;

use rockbot_contracts::{ToolCallId, ToolSource};
use rockbot_memory::{MemoryOwner, SaveOptions};
use rockbot_tools::chunk::ChunkHint;
use serde_json::Value;

use super::LongResult;

/// Lifetime of chunks of a result without a hint.
const CHUNK_TTL: Duration = Duration::from_secs(20 * 60);
/// Maximum number of chunks of a result with a hint. It is one of several in a conversation, and a
/// conversation has 500 entries.
const MAX_HINTED_CHUNKS: usize = 60;
/// Characters of the call id in keys: enough to distinguish the calls of a conversation.
const RUN_CHARS: usize = 8;
/// Bytes of the tool name in keys.
const NAME_BYTES: usize = 64;

/// How a long result is split and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoragePlan {
    /// Common prefix of the keys.
    pub(super) stem: String,
    /// Wanted size of a chunk, in characters.
    pub(super) chunk_chars: usize,
    /// Maximum size of a chunk, in characters.
    pub(super) max_chunk_chars: usize,
    /// Maximum number of chunks.
    pub(super) max_chunks: usize,
    pub(super) ttl: Duration,
    pub(super) category: Option<String>,
    /// Title of the document.
    pub(super) title: String,
    /// Heading that the table begins with.
    pub(super) fragment: Option<String>,
}

impl StoragePlan {
    /// Creates the plan of a result. `entry_chars` is the size of an entry of working memory.
    pub(super) fn new(owner: &MemoryOwner, result: &LongResult<'_>, entry_chars: usize) -> Self {
        let max_chunk_chars = result.chunk_chars().min(entry_chars);
        match &result.hint {
            Some(TrustedHint { hint, category }) => Self {
                stem: format!("{}/{}", owner.namespace(), hint.stem),
                chunk_chars: hint.chunk_chars.min(max_chunk_chars),
                max_chunk_chars,
                max_chunks: MAX_HINTED_CHUNKS,
                ttl: hint.ttl,
                category: Some(category.clone()),
                title: hint.title.clone(),
                fragment: hint.fragment.clone(),
            },
            None => Self {
                stem: call_stem(owner, result.tool, result.call),
                chunk_chars: max_chunk_chars,
                max_chunk_chars,
                max_chunks: usize::MAX,
                ttl: CHUNK_TTL,
                category: None,
                title: String::new(),
                fragment: None,
            },
        }
    }

    pub(super) fn chunk_key(&self, number: usize) -> String {
        format!("{}-chunk{number}", self.stem)
    }

    /// Returns the number of the chunk with this key.
    pub(super) fn chunk_number(&self, key: &str) -> Option<usize> {
        key.strip_prefix(self.stem.as_str())?.strip_prefix("-chunk")?.parse().ok()
    }

    pub(super) fn index_key(&self) -> String {
        format!("{}-index", self.stem)
    }

    /// Returns whether an earlier result may have chunks with the same keys.
    pub(super) fn may_replace(&self) -> bool {
        self.category.is_some()
    }

    pub(super) fn save_options(&self) -> SaveOptions {
        SaveOptions { category: self.category.clone(), ..SaveOptions::with_ttl(self.ttl) }
    }
}

/// A hint whose keys belong to the source of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedHint {
    pub(super) hint: ChunkHint,
    /// Category of the chunks: the source.
    category: String,
}

impl TrustedHint {
    /// Reads the hint in the details of a result. It applies if its stem begins with the source of the tool
    /// and a hyphen, so that no tool replaces what another source has stored.
    pub(crate) fn from_details(details: Option<&Value>, source: &ToolSource) -> Option<Self> {
        let hint = ChunkHint::from_details(details?)?;
        let category = source.text().into_owned();
        let own = hint.stem.strip_prefix(category.as_str())?.strip_prefix('-')?;
        (!own.is_empty()).then_some(Self { hint, category })
    }

    /// Returns the longest text that is shown whole, in characters.
    pub(super) fn threshold(&self) -> usize {
        self.hint.threshold
    }
}

/// `{namespace}/tool-{name}-{runId}`.
fn call_stem(owner: &MemoryOwner, tool: &str, call: &ToolCallId) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let name: String = tool.chars().map(plain).take(NAME_BYTES).collect();
    // An id starts with the time and ends with random characters.
    let call = call.to_string();
    let run: String = call.chars().filter(char::is_ascii_alphanumeric).collect();
    let run = &run[run.len().saturating_sub(RUN_CHARS)..];
    format!("{}/tool-{name}-{run}", owner.namespace())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hint_applies_to_keys_of_its_source() {
        let hint = |stem: &str| json!({"chunking": {"threshold": 8000, "max": 4000, "stem": stem, "ttlSeconds": 60, "title": ""}});
        let read = |stem: &str, source| TrustedHint::from_details(Some(&hint(stem)), &source);
        assert!(read("web-example.com", ToolSource::Web).is_some());
        assert!(read("rest-weather", ToolSource::Rest).is_some());
        assert_eq!(read("web-example.com", ToolSource::Rest), None);
        assert_eq!(read("web-", ToolSource::Web), None);
        assert_eq!(read("web-example.com", ToolSource::Mcp("web".to_owned())), None);
        assert_eq!(TrustedHint::from_details(None, &ToolSource::Web), None);
    }
}
