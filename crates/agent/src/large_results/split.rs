//! Long texts in chunks, and the tables and outlines that replace them.

use std::{borrow::Cow, sync::Arc};

use rockbot_memory::{MemoryOwner, WorkingMemory, WorkingMemoryError};
use rockbot_tools::{
    chunk::{Chunk, Section, chunks, sections},
    outline::document_outline,
};
use tokio::task::spawn_blocking;

use super::{CHUNK_READER, plan::StoragePlan, truncated};

/// Longest outline.
const MAX_OUTLINE_BYTES: usize = 16 * 1024;
/// Maximum number of rows in the table for the model.
const MAX_ROWS: usize = 50;
/// Characters reserved for the last row of the table.
const LAST_ROW_CHARS: usize = 200;

/// A text in chunks, with their keys.
pub(super) struct Split {
    text: Arc<str>,
    pub(super) chunks: Vec<Chunk>,
    outline: String,
    /// Number of the chunk with the heading that was asked for, or 0.
    first: usize,
    plan: StoragePlan,
}

impl Split {
    /// Returns `None` when the process is shutting down.
    pub(super) async fn new(text: Arc<str>, plan: StoragePlan) -> Option<Self> {
        let split = move || {
            let (text, chunks) = limited_chunks(&text, &plan);
            let max_bytes = MAX_OUTLINE_BYTES.min(plan.max_chunk_chars);
            let outline = outline(&text, &chunks, &plan, max_bytes);
            let first = plan.fragment.as_deref().and_then(|name| position(&text, &chunks, name));
            Self { text, chunks, outline, first: first.unwrap_or(0), plan }
        };
        spawn_blocking(split).await.ok()
    }

    /// Stores the chunks, then the outline, so that the outline refers to stored chunks only. Then deletes
    /// the chunks of an earlier, longer text with the same keys.
    pub(super) async fn save(
        &self,
        memory: &WorkingMemory,
        owner: &MemoryOwner,
    ) -> Result<(), WorkingMemoryError> {
        let options = || self.plan.save_options();
        for (number, chunk) in self.chunks.iter().enumerate() {
            let key = self.plan.chunk_key(number);
            memory.save(owner, &key, chunk.slice(&self.text), options()).await?;
        }
        memory.save(owner, &self.plan.index_key(), &self.outline, options()).await?;
        if !self.plan.may_replace() {
            return Ok(());
        }
        for entry in memory.list(owner, Some(&owner.namespace())).await? {
            if self.plan.chunk_number(&entry.key).is_some_and(|number| number >= self.chunks.len())
            {
                memory.delete(owner, &entry.key).await?;
            }
        }
        Ok(())
    }

    /// Renders the replacement of the result, in about `max_chars` characters.
    pub(super) fn table(&self, tool: &str, max_chars: usize) -> String {
        let (chars, count, index) =
            (grouped(self.text.chars().count()), self.chunks.len(), self.plan.index_key());
        let title = match self.plan.title.as_str() {
            "" => String::new(),
            title => format!(" (\"{title}\")"),
        };
        let mut table = format!(
            "The result of '{tool}'{title} has {chars} chars, too many to show. It was split into \
             {count} chunk(s) in working memory, for {} minutes.\n\
             Read the chunks you need with {CHUNK_READER}(key) before you draw conclusions; their \
             outline by headings is at `{index}`.\n\n\
             | # | Heading | Chars | Key |\n|---|---|---|---|\n",
            self.plan.ttl.as_secs().div_ceil(60)
        );
        let mut left = max_chars.saturating_sub(table.chars().count() + LAST_ROW_CHARS);
        let mut rows = 0;
        if self.first > 0 {
            let start = self.plan.chunk_key(0);
            table.push_str(&format!("| … | {} before | | from `{start}` |\n", self.first));
        }
        for (number, chunk) in self.chunks.iter().enumerate().skip(self.first).take(MAX_ROWS) {
            let title = chunk.title(number).replace('|', "/");
            let key = self.plan.chunk_key(number);
            let row = format!("| {number} | {title} | {} | `{key}` |\n", chunk.chars.len());
            // The first row shows the form of the keys.
            if rows > 0 && row.chars().count() > left {
                break;
            }
            left = left.saturating_sub(row.chars().count());
            table.push_str(&row);
            rows += 1;
        }
        let left = count - self.first - rows;
        if left > 0 {
            let last = self.plan.chunk_key(count - 1);
            table.push_str(&format!("| … | {left} more | | up to `{last}` |\n"));
        }
        table
    }
}

/// Renders the sections of a text, or its chunks if it has none, with their keys.
fn outline(text: &str, chunks: &[Chunk], plan: &StoragePlan, max_bytes: usize) -> String {
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
            0 => format!("`{}`", plan.chunk_key(first)),
            _ => format!("`{}` … `{}`", plan.chunk_key(first), plan.chunk_key(last)),
        }
    };
    document_outline(&sections, keys, max_bytes)
}

/// Splits a text into at most as many chunks as the plan allows. They grow first; the rest that still
/// exceeds the limit is omitted.
fn limited_chunks(text: &Arc<str>, plan: &StoragePlan) -> (Arc<str>, Vec<Chunk>) {
    let most = plan.max_chunks;
    let least = text.chars().count().div_ceil(most);
    let mut size = plan.chunk_chars.max(least).min(plan.max_chunk_chars);
    let mut split = chunks(text, size);
    while split.len() > most && size < plan.max_chunk_chars {
        size = (size + size / 2).clamp(size + 1, plan.max_chunk_chars);
        split = chunks(text, size);
    }
    let (mut text, mut kept) = (Cow::Borrowed(&**text), most);
    while split.len() > most && kept > 0 {
        // The note takes a part of the last chunk, or one of its own.
        kept -= 1;
        text = Cow::Owned(truncated(text.into_owned(), split[kept].chars.start));
        split = chunks(&text, size);
    }
    (Arc::from(text), split)
}

/// Returns the number of the chunk in which the section with this name begins.
fn position(text: &str, chunks: &[Chunk], name: &str) -> Option<usize> {
    let wanted = slug(name);
    let sections = sections(text);
    let section = sections.iter().find(|section| slug(&section.title) == wanted)?;
    Some(chunks.partition_point(|chunk| chunk.bytes.end <= section.bytes.start))
}

/// Returns a heading in the form of a fragment: letters and digits in lower case, joined by hyphens.
fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
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
