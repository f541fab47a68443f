//! Tool results that are too long for the model: stored in working memory in chunks, and replaced by an
//! outline.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::ToolCallId;
use rockbot_memory::{MemoryOwner, SaveOptions, WorkingMemory, WorkingMemoryError};
use rockbot_tools::{
    chunk::{Chunk, Section, chunks, sections},
    outline::document_outline,
    outputs::TOOL_OUTPUT,
};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::{info, warn};

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
/// Lifetime of chunks.
const CHUNK_TTL: Duration = Duration::from_secs(20 * 60);
/// Time limit for storing all chunks.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest outline.
const MAX_OUTLINE_BYTES: usize = 16 * 1024;
/// Maximum number of rows in the table for the model.
const MAX_ROWS: usize = 50;
/// Characters reserved for the last row of the table.
const LAST_ROW_CHARS: usize = 200;
/// Characters of the call id in keys: enough to distinguish the calls of a conversation.
const RUN_CHARS: usize = 8;
/// Bytes of the tool name in keys.
const NAME_BYTES: usize = 64;

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
}

impl LongResult<'_> {
    /// Returns the chunk size in characters.
    fn chunk_chars(&self) -> usize {
        self.threshold.max(MIN_CHUNK_CHARS).min(self.readable)
    }
}

impl LargeResults {
    /// Returns the text for the model: the result, a table of its chunks, or its beginning.
    pub(crate) async fn render(&self, owner: &MemoryOwner, result: LongResult<'_>) -> String {
        let LongResult { tool, threshold, readable, .. } = result;
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
        let max_chars = result.chunk_chars().min(memory.limits().entry_bytes / 4);
        let stem = stem(owner, tool, result.call);
        let text: Arc<str> = result.text.into();
        let splitting = Split::new(text.clone(), max_chars, stem);
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

/// A text in chunks, with their keys.
struct Split {
    text: Arc<str>,
    chunks: Vec<Chunk>,
    outline: String,
    /// Common prefix of the keys.
    stem: String,
}

impl Split {
    /// Returns `None` when the process is shutting down.
    async fn new(text: Arc<str>, max_chars: usize, stem: String) -> Option<Self> {
        let split = move || {
            let chunks = chunks(&text, max_chars);
            let outline = outline(&text, &chunks, &stem, MAX_OUTLINE_BYTES.min(max_chars));
            Self { text, chunks, outline, stem }
        };
        spawn_blocking(split).await.ok()
    }

    /// Stores the chunks, then the outline, so that the outline refers to stored chunks only.
    async fn save(
        &self,
        memory: &WorkingMemory,
        owner: &MemoryOwner,
    ) -> Result<(), WorkingMemoryError> {
        for (number, chunk) in self.chunks.iter().enumerate() {
            let key = chunk_key(&self.stem, number);
            memory
                .save(owner, &key, chunk.slice(&self.text), SaveOptions::with_ttl(CHUNK_TTL))
                .await?;
        }
        memory
            .save(owner, &self.index_key(), &self.outline, SaveOptions::with_ttl(CHUNK_TTL))
            .await?;
        Ok(())
    }

    fn index_key(&self) -> String {
        format!("{}-index", self.stem)
    }

    /// Renders the replacement of the result, in about `max_chars` characters.
    fn table(&self, tool: &str, max_chars: usize) -> String {
        let (chars, count, index) =
            (grouped(self.text.chars().count()), self.chunks.len(), self.index_key());
        let mut table = format!(
            "The result of '{tool}' has {chars} chars, too many to show. It was split into \
             {count} chunk(s) in working memory, for {} minutes.\n\
             Read the chunks you need with {CHUNK_READER}(key) before you draw conclusions; their \
             outline by headings is at `{index}`.\n\n\
             | # | Heading | Chars | Key |\n|---|---|---|---|\n",
            CHUNK_TTL.as_secs() / 60
        );
        let mut left = max_chars.saturating_sub(table.chars().count() + LAST_ROW_CHARS);
        let mut rows = 0;
        for (number, chunk) in self.chunks.iter().enumerate().take(MAX_ROWS) {
            let title = chunk.title(number).replace('|', "/");
            let key = chunk_key(&self.stem, number);
            let row = format!("| {number} | {title} | {} | `{key}` |\n", chunk.chars.len());
            // The first row shows the form of the keys.
            if number > 0 && row.chars().count() > left {
                break;
            }
            left = left.saturating_sub(row.chars().count());
            table.push_str(&row);
            rows += 1;
        }
        if count > rows {
            let last = chunk_key(&self.stem, count - 1);
            table.push_str(&format!("| … | {} more | | up to `{last}` |\n", count - rows));
        }
        table
    }
}

/// Renders the sections of a text, or its chunks if it has none, with their keys.
fn outline(text: &str, chunks: &[Chunk], stem: &str, max_bytes: usize) -> String {
    let mut sections = sections(text);
    let first_section = sections.first().map_or(text.len(), |first| first.bytes.start);
    let before = chunks.iter().enumerate().filter(|(_, chunk)| chunk.bytes.start < first_section);
    let unnamed: Vec<_> = before
        .map(|(number, chunk)| {
            let bytes = chunk.bytes.start..chunk.bytes.end.min(first_section);
            let chars = text[bytes.clone()].chars().count();
            Section { level: 1, title: format!("Part {number}"), bytes, chars, line: chunk.lines.0 }
        })
        .collect();
    sections.splice(..0, unnamed);
    let number_at = |byte: usize| chunks.partition_point(|chunk| chunk.bytes.end <= byte);
    let keys = |section: &Section| {
        let first = number_at(section.bytes.start);
        let last = number_at(section.bytes.end.saturating_sub(1)).max(first);
        match last - first {
            0 => format!("`{}`", chunk_key(stem, first)),
            _ => format!("`{}` … `{}`", chunk_key(stem, first), chunk_key(stem, last)),
        }
    };
    document_outline(&sections, keys, max_bytes)
}

/// `{namespace}/tool-{name}-{runId}`.
fn stem(owner: &MemoryOwner, tool: &str, call: &ToolCallId) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let name: String = tool.chars().map(plain).take(NAME_BYTES).collect();
    // An id starts with the time and ends with random characters.
    let call = call.to_string();
    let run: String = call.chars().filter(char::is_ascii_alphanumeric).collect();
    let run = &run[run.len().saturating_sub(RUN_CHARS)..];
    format!("{}/tool-{name}-{run}", owner.namespace())
}

fn chunk_key(stem: &str, number: usize) -> String {
    format!("{stem}-chunk{number}")
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

/// Formats 462000 as `462 000`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
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
        let result = LongResult { tool, call: &call, text, threshold, readable, can_read_chunks };
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
