//! What a model is told of its working memory without asking.

use std::{cmp::Reverse, fmt::Write as _};

use super::{
    address::MemoryOwner, error::WorkingMemoryError, memory::WorkingMemory, tools::line_of,
};

impl WorkingMemory {
    /// A list of the keys that the owner reaches, the newest first, in at most `most_bytes` bytes;
    /// none when there is nothing.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn inventory(
        &self,
        owner: &MemoryOwner,
        most_bytes: usize,
    ) -> Result<Option<String>, WorkingMemoryError> {
        let mut entries = self.list(owner, None).await?;
        if entries.is_empty() {
            return Ok(None);
        }
        entries.sort_by_key(|entry| Reverse(entry.saved_at));
        let mut text = "In working memory (get_from_working_memory reads an entry):\n".to_owned();
        for (at, entry) in entries.iter().enumerate() {
            let line = format!("- {}\n", line_of(entry));
            let more = entries.len() - at;
            let rest = format!("… and {more} more; list_working_memory shows them.\n");
            if text.len() + line.len() + rest.len() > most_bytes {
                let _ = write!(text, "{rest}");
                break;
            }
            text.push_str(&line);
        }
        Ok(Some(text.trim_end().to_owned()))
    }
}
