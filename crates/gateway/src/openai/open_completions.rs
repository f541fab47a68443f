//! The number of completions of one identity at a time.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Maximum number of open completions of one identity, so that it cannot take all connections.
const MAX_OPEN: usize = 256;

/// Counts the open completions of each identity.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenCompletions(Arc<Mutex<HashMap<Arc<str>, usize>>>);

impl OpenCompletions {
    /// Counts a completion until the value is dropped; `None` if the identity has too many.
    pub(super) fn open(&self, subject: &Arc<str>) -> Option<OpenCompletion> {
        let mut open = self.0.lock();
        let count = open.entry(subject.clone()).or_default();
        if *count >= MAX_OPEN {
            return None;
        }
        *count += 1;
        Some(OpenCompletion { open: self.clone(), subject: subject.clone() })
    }
}

/// An open completion, until dropped.
#[derive(Debug)]
pub(super) struct OpenCompletion {
    open: OpenCompletions,
    subject: Arc<str>,
}

impl Drop for OpenCompletion {
    fn drop(&mut self) {
        let mut open = self.open.0.lock();
        if let Some(count) = open.get_mut(&self.subject) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.subject);
            }
        }
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
        assert!(completions.0.lock().is_empty());
    }
}
