//! Tool results that are too long for the model: stored in working memory in chunks, and replaced by an
//! outline.

mod plan;
mod split;

use std::{sync::Arc, time::Duration};

use rockbot_contracts::ToolCallId;
use rockbot_memory::{MemoryOwner, WorkingMemory};
use rockbot_tools::outputs::TOOL_OUTPUT;
use tokio::time::timeout;
use tracing::{info, warn};

pub(crate) use self::plan::TrustedHint;
use self::{plan::StoragePlan, split::Split};

/// The tool that reads a chunk. Its results are not split again.
pub(crate) const CHUNK_READER: &str = "get_from_working_memory";
/// Minimum chunk size in characters, even if the threshold is lower and the window larger. Smaller chunks
/// would take too many calls to read.
const MIN_CHUNK_CHARS: usize = 20_000;
/// Characters that a tool may add around a chunk.
const CHUNK_OVERHEAD_CHARS: usize = 1000;
/// End of a truncated text, with the number of omitted characters in between.
const NOTE_PREFIX: &str = "\n[result truncated — ";
const NOTE_SUFFIX: &str = " chars omitted]";
/// Time limit for storing all chunks.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Storage for long results. Without working memory they are truncated.
#[derive(Debug, Default)]
pub(crate) struct LargeResults {
    pub(crate) memory: Option<WorkingMemory>,
}

/// A tool result for the model.
pub(crate) struct LongResult<'a> {
    pub(crate) tool: &'a str,
    pub(crate) call: &'a ToolCallId,
    pub(crate) text: String,
    /// Longest text that is shown whole, in characters.
    pub(crate) threshold: usize,
    /// A quarter of the context window, in characters. No chunk is longer.
    pub(crate) readable: usize,
    /// The model may call the tool that reads chunks.
    pub(crate) can_read_chunks: bool,
    /// The tool's wish on how it is split.
    pub(crate) hint: Option<TrustedHint>,
}

impl LongResult<'_> {
    /// Returns the longest text that is shown whole, in characters.
    fn shown_chars(&self) -> usize {
        let hinted = self.hint.as_ref().map_or(usize::MAX, TrustedHint::threshold);
        self.threshold.min(hinted)
    }

    /// Returns the maximum chunk size in characters.
    fn chunk_chars(&self) -> usize {
        self.threshold.max(MIN_CHUNK_CHARS).min(self.readable)
    }
}

impl LargeResults {
    /// Returns the text for the model: the result, a table of its chunks, or its beginning.
    pub(crate) async fn render(&self, owner: &MemoryOwner, result: LongResult<'_>) -> String {
        let LongResult { tool, readable, .. } = result;
        let threshold = result.shown_chars();
        if is_within(&result.text, threshold) {
            return result.text;
        }
        // Already stored: storing it again would loop.
        if matches!(tool, CHUNK_READER | TOOL_OUTPUT) {
            // Twice the limit, so that instructions on how to continue are not truncated.
            let most = threshold.max(MIN_CHUNK_CHARS).min(readable.saturating_mul(2));
            return truncated(result.text, most + CHUNK_OVERHEAD_CHARS);
        }
        let memory = self.memory.as_ref().filter(|_| result.can_read_chunks);
        let Some(memory) = memory else { return truncated(result.text, threshold) };
        // A character has at most four bytes.
        let plan = StoragePlan::new(owner, &result, memory.limits().entry_bytes / 4);
        let text: Arc<str> = result.text.into();
        let splitting = Split::new(text.clone(), plan);
        let Some(split) = splitting.await else { return truncated(text.to_string(), threshold) };
        match timeout(SAVE_TIMEOUT, split.save(memory, owner)).await {
            Ok(Ok(())) => {
                info!(%tool, chunks = split.chunks.len(), "tool result stored in chunks");
                split.table(tool, threshold)
            }
            Ok(Err(error)) => {
                warn!(%tool, %error, "storing tool result failed; truncated");
                truncated(text.to_string(), threshold)
            }
            Err(_) => {
                warn!(%tool, "storing tool result timed out; truncated");
                truncated(text.to_string(), threshold)
            }
        }
    }
}

fn is_within(text: &str, chars: usize) -> bool {
    // Avoids counting for short texts.
    text.len() <= chars || text.chars().nth(chars).is_none()
}

/// Truncates a text to `chars` characters. The note counts everything omitted, including earlier
/// truncations.
pub(crate) fn truncated(mut text: String, chars: usize) -> String {
    let (body, missing) = missing(&text).unwrap_or((&text, 0));
    if let Some((end, _)) = body.char_indices().nth(chars) {
        let omitted = body[end..].chars().count().saturating_add(missing);
        text.truncate(end);
        text.push_str(&format!("{NOTE_PREFIX}{omitted}{NOTE_SUFFIX}"));
    }
    text
}

/// Splits a truncated text into its beginning and the number of omitted characters.
fn missing(text: &str) -> Option<(&str, usize)> {
    let (body, omitted) = text.strip_suffix(NOTE_SUFFIX)?.rsplit_once(NOTE_PREFIX)?;
    Some((body, omitted.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_store::{Clock, ManualClock, MemoryStore, Store};

    use super::*;

    fn owner() -> MemoryOwner {
        let session = SessionId::new("abc123").unwrap();
        MemoryOwner { agent: AgentName::new("assistant").unwrap(), session }
    }

    fn with_memory(store: impl Store) -> (LargeResults, WorkingMemory) {
        let memory = WorkingMemory::new(Arc::new(store));
        (LargeResults { memory: Some(memory.clone()) }, memory)
    }

    async fn shown(large: &LargeResults, tool: &str, text: &str, threshold: usize) -> String {
        shown_to(large, tool, text, Reader { threshold, readable: usize::MAX, can_read: true })
            .await
    }

    /// Limits of a model.
    struct Reader {
        threshold: usize,
        readable: usize,
        can_read: bool,
    }

    async fn shown_to(large: &LargeResults, tool: &str, text: &str, reader: Reader) -> String {
        let Reader { threshold, readable, can_read: can_read_chunks } = reader;
        let (call, text) = (ToolCallId::generate(), text.to_owned());
        let hint = None;
        let result =
            LongResult { tool, call: &call, text, threshold, readable, can_read_chunks, hint };
        large.render(&owner(), result).await
    }

    fn keys(rendered: &str) -> Vec<&str> {
        let rows = rendered.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        rows.filter_map(|row| row.split('`').nth(1)).collect()
    }

    #[tokio::test]
    async fn long_result_is_stored_and_fully_readable() {
        let clock = ManualClock::new();
        let (large, memory) = with_memory(MemoryStore::new(Clock::from(&clock)));
        let part = |name: &str| format!("# {name}\n{}", "many words, für alle\n".repeat(2000));
        let text = format!("{}{}{}", part("Models"), part("Pricing"), part("Limits"));
        let rendered = shown(&large, "list_models", &text, 64_000).await;
        assert!(
            rendered.starts_with("The result of 'list_models' has 126 028 chars"),
            "{rendered}"
        );
        let keys = keys(&rendered);
        assert_eq!(keys.len(), 3, "{rendered}");
        assert!(keys[0].starts_with("session/abc123/tool-list_models-"), "{rendered}");
        assert!(keys[2].ends_with("-chunk2"), "{rendered}");
        assert!(rendered.contains("| 1 | Pricing | 42010 |"), "{rendered}");

        let mut whole = String::new();
        for key in &keys {
            whole.push_str(&memory.get(&owner(), key).await.unwrap().unwrap());
        }
        assert!(whole == text);
        let index = keys[0].replace("-chunk0", "-index");
        let outline = memory.get(&owner(), &index).await.unwrap().unwrap();
        assert!(outline.starts_with("## Document Outline\n- **Models** → `session/abc123/"));
        assert!(outline.contains(&format!("- **Pricing** → `{}`", keys[1])), "{outline}");

        clock.advance(Duration::from_secs(20 * 60));
        assert_eq!(memory.get(&owner(), keys[0]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn text_without_headings_is_split_into_parts() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let rendered = shown(&large, "logs", &"line\n".repeat(10_000), 1000).await;
        let keys = keys(&rendered);
        assert_eq!(keys.len(), 3, "{rendered}");
        let index = keys[0].replace("-chunk0", "-index");
        let outline = memory.get(&owner(), &index).await.unwrap().unwrap();
        assert!(outline.contains(&format!("- **Part 2** → `{}`", keys[2])), "{outline}");

        let chunk = memory.get(&owner(), keys[0]).await.unwrap().unwrap();
        assert_eq!(chunk.len(), 20_000);
        let read = shown(&large, "get_from_working_memory", &chunk, 1000).await;
        assert!(read == chunk, "a chunk is not split again");
    }

    #[tokio::test]
    async fn result_is_truncated_without_chunk_reader() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let reader = Reader { threshold: 1000, readable: usize::MAX, can_read: false };
        let rendered = shown_to(&large, "logs", &"x".repeat(1500), reader).await;
        let expected = format!("{}\n[result truncated — 500 chars omitted]", "x".repeat(1000));
        assert_eq!(rendered, expected);
        assert!(memory.list(&owner(), None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn chunks_and_table_fit_small_window() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let reader = || Reader { threshold: 4000, readable: 4000, can_read: true };
        let text = format!("# {}\n{}\n", "long | title ".repeat(20), "words ".repeat(500));
        let rendered = shown_to(&large, "logs", &text.repeat(60), reader()).await;
        assert!(rendered.chars().count() <= 4000, "{rendered}");
        let keys = keys(&rendered);
        assert!(keys.len() > 5 && keys.last().unwrap().ends_with("-chunk59"), "{rendered}");
        let index = keys[0].replace("-chunk0", "-index");
        for key in [keys[0], &index] {
            let kept = memory.get(&owner(), key).await.unwrap().unwrap();
            assert!(kept.chars().count() <= 4000, "{key}");
            assert!(shown_to(&large, CHUNK_READER, &kept, reader()).await == kept, "{key}");
        }
    }

    #[test]
    fn note_counts_earlier_truncations() {
        let once = truncated("ü".repeat(100), 60);
        assert_eq!(truncated(once.clone(), 10), truncated("ü".repeat(100), 10));
        assert_eq!(truncated(once.clone(), 60), once, "the note does not count");
    }

    #[tokio::test]
    async fn result_is_truncated_without_working_memory() {
        let closed = MemoryStore::new(Clock::System);
        closed.close().await;
        let (full, _) = with_memory(closed);
        for large in [LargeResults::default(), full] {
            let rendered = shown(&large, "logs", &"ü".repeat(70_000), 64_000).await;
            let expected =
                format!("{}\n[result truncated — 6000 chars omitted]", "ü".repeat(64_000));
            assert!(rendered == expected);
            assert_eq!(shown(&large, "logs", "short", 64_000).await, "short");
        }
    }
}
