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
mod tests;
