//! Tool results that are too long for a model to be shown whole: in working memory, piece by piece,
//! with an outline in their place.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::ToolCallId;
use rockbot_memory::{MemoryOwner, Saving, WorkingMemory, WorkingMemoryError};
use rockbot_tools::{
    chunk::{Chunk, Section, chunks, sections},
    outline::document_outline,
    outputs::TOOL_OUTPUT,
};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::{info, warn};

/// The tool that reads a chunk. What it returns is one already.
pub(crate) const READS_CHUNKS: &str = "get_from_working_memory";
/// A chunk may have so many characters, also where the model is shown fewer and could read more:
/// else a long result takes too many calls to read.
const LEAST_CHUNK_CHARS: usize = 20_000;
/// What a tool may say around a chunk.
const AROUND_CHUNK_CHARS: usize = 1000;
/// What a text ends with that was cut, with a number in between.
const NOTE_BEGINS: &str = "\n[result truncated — ";
const NOTE_ENDS: &str = " chars omitted]";
/// How long chunks are kept.
const KEEP: Duration = Duration::from_secs(20 * 60);
/// How long working memory may take for all of them.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest outline.
const OUTLINE_BYTES: usize = 16 * 1024;
/// Rows of the table that the model reads.
const MOST_ROWS: usize = 50;
/// Room for the last row of the table, in characters.
const LAST_ROW_CHARS: usize = 200;
/// Characters of a call's id in keys: enough to tell the calls of a conversation apart.
const RUN_CHARS: usize = 8;
/// Bytes of a tool's name in keys.
const NAME_BYTES: usize = 64;

/// Where results go that are too long for the model. Without working memory they are cut.
#[derive(Debug, Default)]
pub(crate) struct LargeResults {
    pub(crate) memory: Option<WorkingMemory>,
}

/// A result on its way to the model.
pub(crate) struct LongResult<'a> {
    pub(crate) tool: &'a str,
    pub(crate) call: &'a ToolCallId,
    pub(crate) text: String,
    /// Longest text that the model is shown whole, in characters.
    pub(crate) threshold: usize,
    /// A quarter of what the model can read, in characters: no chunk is longer.
    pub(crate) readable: usize,
    /// Whether the model may call the tool that reads chunks.
    pub(crate) can_read_chunks: bool,
}

impl LongResult<'_> {
    /// The longest chunk, in characters.
    fn chunk_chars(&self) -> usize {
        self.threshold.max(LEAST_CHUNK_CHARS).min(self.readable)
    }
}

impl LargeResults {
    /// What the model reads: the text, or where its chunks are, or its beginning.
    pub(crate) async fn shown(&self, owner: &MemoryOwner, result: LongResult<'_>) -> String {
        let LongResult { tool, threshold, readable, .. } = result;
        if is_within(&result.text, threshold) {
            return result.text;
        }
        // To keep what was kept before would lead nowhere.
        if matches!(tool, READS_CHUNKS | TOOL_OUTPUT) {
            // An answer that says how to go on had better be whole, so it may have twice as much.
            let most = threshold.max(LEAST_CHUNK_CHARS).min(readable.saturating_mul(2));
            return truncated(result.text, most + AROUND_CHUNK_CHARS);
        }
        let memory = self.memory.as_ref().filter(|_| result.can_read_chunks);
        let Some(memory) = memory else { return truncated(result.text, threshold) };
        // A character has four bytes at most.
        let max_chars = result.chunk_chars().min(memory.limits().entry_bytes / 4);
        let stem = stem(owner, tool, result.call);
        let text: Arc<str> = result.text.into();
        let splitting = Split::of(text.clone(), max_chars, stem);
        let Some(split) = splitting.await else { return truncated(text.to_string(), threshold) };
        match timeout(PATIENCE, split.save(memory, owner)).await {
            Ok(Ok(())) => {
                info!(%tool, chunks = split.chunks.len(), "a result is in working memory, in chunks");
                split.told(tool, threshold)
            }
            Ok(Err(error)) => {
                warn!(%tool, %error, "a long result can't be kept, so it is cut");
                truncated(text.to_string(), threshold)
            }
            Err(_) => {
                warn!(%tool, "working memory takes too long, so a long result is cut");
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
    /// What the keys have in common.
    stem: String,
}

impl Split {
    /// None when the process ends meanwhile.
    async fn of(text: Arc<str>, max_chars: usize, stem: String) -> Option<Self> {
        let split = move || {
            let chunks = chunks(&text, max_chars);
            let outline = outline(&text, &chunks, &stem, OUTLINE_BYTES.min(max_chars));
            Self { text, chunks, outline, stem }
        };
        spawn_blocking(split).await.ok()
    }

    /// The outline comes last: what it tells of is there.
    async fn save(
        &self,
        memory: &WorkingMemory,
        owner: &MemoryOwner,
    ) -> Result<(), WorkingMemoryError> {
        for (number, chunk) in self.chunks.iter().enumerate() {
            let key = chunk_key(&self.stem, number);
            memory.save(owner, &key, chunk.slice(&self.text), Saving::for_a_time(KEEP)).await?;
        }
        memory.save(owner, &self.index_key(), &self.outline, Saving::for_a_time(KEEP)).await?;
        Ok(())
    }

    fn index_key(&self) -> String {
        format!("{}-index", self.stem)
    }

    /// What the model reads in place of the result, in about `most_chars` characters.
    fn told(&self, tool: &str, most_chars: usize) -> String {
        let (chars, count, index) =
            (grouped(self.text.chars().count()), self.chunks.len(), self.index_key());
        let mut told = format!(
            "The result of '{tool}' has {chars} chars, too many to be shown. It was split into \
             {count} chunk(s) in working memory, for {} minutes.\n\
             Read the chunks you need with {READS_CHUNKS}(key) before you draw conclusions; their \
             outline by headings is at `{index}`.\n\n\
             | # | Heading | Chars | Key |\n|---|---|---|---|\n",
            KEEP.as_secs() / 60
        );
        let mut left = most_chars.saturating_sub(told.chars().count() + LAST_ROW_CHARS);
        let mut rows = 0;
        for (number, chunk) in self.chunks.iter().enumerate().take(MOST_ROWS) {
            let title = chunk.title(number).replace('|', "/");
            let key = chunk_key(&self.stem, number);
            let row = format!("| {number} | {title} | {} | `{key}` |\n", chunk.chars.len());
            // The first one shows what a key is like.
            if number > 0 && row.chars().count() > left {
                break;
            }
            left = left.saturating_sub(row.chars().count());
            told.push_str(&row);
            rows += 1;
        }
        if count > rows {
            let last = chunk_key(&self.stem, count - 1);
            told.push_str(&format!("| … | {} more | | up to `{last}` |\n", count - rows));
        }
        told
    }
}

/// The sections of a text, or its chunks where it has none, each with the keys it is at.
fn outline(text: &str, chunks: &[Chunk], stem: &str, max_bytes: usize) -> String {
    let mut sections = sections(text);
    let begins = sections.first().map_or(text.len(), |first| first.bytes.start);
    let before = chunks.iter().enumerate().filter(|(_, chunk)| chunk.bytes.start < begins);
    let unnamed: Vec<_> = before
        .map(|(number, chunk)| {
            let bytes = chunk.bytes.start..chunk.bytes.end.min(begins);
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
    // The end of an id is chance, its beginning the time.
    let call = call.to_string();
    let run: String = call.chars().filter(char::is_ascii_alphanumeric).collect();
    let run = &run[run.len().saturating_sub(RUN_CHARS)..];
    format!("{}/tool-{name}-{run}", owner.namespace())
}

fn chunk_key(stem: &str, number: usize) -> String {
    format!("{stem}-chunk{number}")
}

fn is_within(text: &str, chars: usize) -> bool {
    // Most texts are short, and need no counting.
    text.len() <= chars || text.chars().nth(chars).is_none()
}

/// The beginning of a text that is longer than so many characters, saying how much is missing: also
/// of what was missing before.
pub(crate) fn truncated(mut text: String, chars: usize) -> String {
    let (body, missing) = missing(&text).unwrap_or((&text, 0));
    if let Some((end, _)) = body.char_indices().nth(chars) {
        let omitted = body[end..].chars().count().saturating_add(missing);
        text.truncate(end);
        text.push_str(&format!("{NOTE_BEGINS}{omitted}{NOTE_ENDS}"));
    }
    text
}

/// A text that was cut before, without the note about it, and the characters that are missing.
fn missing(text: &str) -> Option<(&str, usize)> {
    let (body, omitted) = text.strip_suffix(NOTE_ENDS)?.rsplit_once(NOTE_BEGINS)?;
    Some((body, omitted.parse().ok()?))
}

/// 462000 as `462 000`.
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

    /// A model that is shown results.
    struct Reader {
        threshold: usize,
        readable: usize,
        can_read: bool,
    }

    async fn shown_to(large: &LargeResults, tool: &str, text: &str, reader: Reader) -> String {
        let Reader { threshold, readable, can_read: can_read_chunks } = reader;
        let (call, text) = (ToolCallId::generate(), text.to_owned());
        let result = LongResult { tool, call: &call, text, threshold, readable, can_read_chunks };
        large.shown(&owner(), result).await
    }

    fn keys(told: &str) -> Vec<&str> {
        let rows = told.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        rows.filter_map(|row| row.split('`').nth(1)).collect()
    }

    #[tokio::test]
    async fn a_long_result_is_in_working_memory_and_all_of_it_can_be_read() {
        let clock = ManualClock::new();
        let (large, memory) = with_memory(MemoryStore::new(Clock::from(&clock)));
        let part = |name: &str| format!("# {name}\n{}", "many words, für alle\n".repeat(2000));
        let text = format!("{}{}{}", part("Models"), part("Pricing"), part("Limits"));
        let told = shown(&large, "list_models", &text, 64_000).await;
        assert!(told.starts_with("The result of 'list_models' has 126 028 chars"), "{told}");
        let keys = keys(&told);
        assert_eq!(keys.len(), 3, "{told}");
        assert!(keys[0].starts_with("session/abc123/tool-list_models-"), "{told}");
        assert!(keys[2].ends_with("-chunk2"), "{told}");
        assert!(told.contains("| 1 | Pricing | 42010 |"), "{told}");

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
    async fn a_text_without_headings_has_parts_and_a_small_threshold_no_small_chunks() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let told = shown(&large, "logs", &"line\n".repeat(10_000), 1000).await;
        let keys = keys(&told);
        assert_eq!(keys.len(), 3, "{told}");
        let index = keys[0].replace("-chunk0", "-index");
        let outline = memory.get(&owner(), &index).await.unwrap().unwrap();
        assert!(outline.contains(&format!("- **Part 2** → `{}`", keys[2])), "{outline}");

        let chunk = memory.get(&owner(), keys[0]).await.unwrap().unwrap();
        assert_eq!(chunk.len(), 20_000);
        let read = shown(&large, "get_from_working_memory", &chunk, 1000).await;
        assert!(read == chunk, "a chunk is not split again");
    }

    #[tokio::test]
    async fn a_model_that_may_not_read_chunks_is_shown_the_beginning() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let reader = Reader { threshold: 1000, readable: usize::MAX, can_read: false };
        let told = shown_to(&large, "logs", &"x".repeat(1500), reader).await;
        let expected = format!("{}\n[result truncated — 500 chars omitted]", "x".repeat(1000));
        assert_eq!(told, expected);
        assert!(memory.list(&owner(), None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_model_with_a_small_window_gets_chunks_and_a_table_that_fit() {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let reader = || Reader { threshold: 4000, readable: 4000, can_read: true };
        let text = format!("# {}\n{}\n", "long | title ".repeat(20), "words ".repeat(500));
        let told = shown_to(&large, "logs", &text.repeat(60), reader()).await;
        assert!(told.chars().count() <= 4000, "{told}");
        let keys = keys(&told);
        assert!(keys.len() > 5 && keys.last().unwrap().ends_with("-chunk59"), "{told}");
        let index = keys[0].replace("-chunk0", "-index");
        for key in [keys[0], &index] {
            let kept = memory.get(&owner(), key).await.unwrap().unwrap();
            assert!(kept.chars().count() <= 4000, "{key}");
            assert!(shown_to(&large, READS_CHUNKS, &kept, reader()).await == kept, "{key}");
        }
    }

    #[test]
    fn what_is_cut_again_tells_of_all_that_is_missing() {
        let once = truncated("ü".repeat(100), 60);
        assert_eq!(truncated(once.clone(), 10), truncated("ü".repeat(100), 10));
        assert_eq!(truncated(once.clone(), 60), once, "the note alone is no reason to cut");
    }

    #[tokio::test]
    async fn without_room_or_memory_a_long_result_is_cut_with_the_notice() {
        let closed = MemoryStore::new(Clock::System);
        closed.close().await;
        let (full, _) = with_memory(closed);
        for large in [LargeResults::default(), full] {
            let told = shown(&large, "logs", &"ü".repeat(70_000), 64_000).await;
            let expected =
                format!("{}\n[result truncated — 6000 chars omitted]", "ü".repeat(64_000));
            assert!(told == expected);
            assert_eq!(shown(&large, "logs", "short", 64_000).await, "short");
        }
    }
}
