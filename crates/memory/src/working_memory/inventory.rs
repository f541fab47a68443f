//! The list of entries that is included in prompts.

use std::{cmp::Reverse, fmt::Write as _};

use super::{
    address::MemoryOwner, error::WorkingMemoryError, memory::WorkingMemory, tools::describe,
};

impl WorkingMemory {
    /// Returns a list of the owner's keys, newest first, in up to `max_bytes` bytes; `None` if there are
    /// none.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn inventory(
        &self,
        owner: &MemoryOwner,
        max_bytes: usize,
    ) -> Result<Option<String>, WorkingMemoryError> {
        let mut entries = self.list(owner, None).await?;
        if entries.is_empty() {
            return Ok(None);
        }
        entries.sort_by_key(|entry| Reverse(entry.saved_at));
        let mut text = "In working memory (get_from_working_memory reads an entry):\n".to_owned();
        for (index, entry) in entries.iter().enumerate() {
            let line = format!("- {}\n", describe(entry));
            let more = entries.len() - index;
            let rest = format!("… and {more} more; list_working_memory shows them.\n");
            if text.len() + line.len() + rest.len() > max_bytes {
                let _ = write!(text, "{rest}");
                break;
            }
            text.push_str(&line);
        }
        Ok(Some(text.trim_end().to_owned()))
    }
}
