//! The number of completions of one identity at a time.

use std::sync::Arc;

use crate::open_counts::{OpenCounts, OpenPermit};

/// Maximum number of open completions of one identity, so that it cannot take all connections.
const MAX_OPEN: usize = 256;

/// Counts the open completions of each identity.
#[derive(Debug, Default)]
pub(super) struct OpenCompletions(OpenCounts);

impl OpenCompletions {
    /// Counts a completion until the value is dropped; `None` if the identity has too many.
    pub(super) fn open(&self, subject: &Arc<str>) -> Option<OpenPermit> {
        self.0.admit(subject, MAX_OPEN, usize::MAX).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_one_identity_are_bounded() {
        let completions = OpenCompletions::default();
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        let mut open: Vec<_> = (0..MAX_OPEN).map(|_| completions.open(&ada).unwrap()).collect();
        assert!(completions.open(&ada).is_none());
        assert!(completions.open(&bob).is_some());
        open.pop();
        assert!(completions.open(&ada).is_some());
        drop(open);
        assert!(completions.0.is_empty());
    }
}
