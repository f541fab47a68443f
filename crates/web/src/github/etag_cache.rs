//! Responses for conditional requests: an unchanged one does not count for the rate limit.

use std::collections::VecDeque;

use http::HeaderValue;

/// Maximum number of responses.
const MAX_ENTRIES: usize = 256;
/// Maximum size of a stored body, and of all bodies, in bytes.
const MAX_BODY: usize = 256 * 1024;
const MAX_TOTAL: usize = 16 * 1024 * 1024;

/// The most recently used responses, in memory.
#[derive(Default)]
pub(super) struct EtagCache {
    /// The least recently used one first.
    entries: VecDeque<(String, Stored)>,
    bytes: usize,
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// Value of the header `ETag`.
    pub(super) etag: HeaderValue,
    /// Body.
    pub(super) body: Vec<u8>,
    /// `true` if more pages follow.
    pub(super) has_next: bool,
    /// `true` if the body is JSON.
    pub(super) is_json: bool,
}

impl EtagCache {
    /// Returns the response to a request, and marks it as used.
    pub(super) fn get(&mut self, request: &str) -> Option<Stored> {
        let index = self.entries.iter().position(|(key, _)| key == request)?;
        let entry = self.entries.remove(index)?;
        let stored = entry.1.clone();
        self.entries.push_back(entry);
        Some(stored)
    }

    /// Stores the response to a request. A body over the limit is not stored.
    pub(super) fn put(&mut self, request: String, stored: Stored) {
        if let Some(index) = self.entries.iter().position(|(key, _)| *key == request) {
            self.remove(index);
        }
        if stored.body.len() > MAX_BODY {
            return;
        }
        self.bytes += stored.body.len();
        self.entries.push_back((request, stored));
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_TOTAL {
            self.remove(0);
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some((_, stored)) = self.entries.remove(index) {
            self.bytes -= stored.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(bytes: usize) -> Stored {
        let etag = HeaderValue::from_static("\"a\"");
        Stored { etag, body: vec![0; bytes], has_next: false, is_json: true }
    }

    #[test]
    fn least_recently_used_response_is_dropped() {
        let mut cache = EtagCache::default();
        for number in 0..MAX_ENTRIES {
            cache.put(number.to_string(), stored(1));
        }
        assert!(cache.get("0").is_some());
        cache.put("new".to_owned(), stored(1));
        assert!(cache.get("0").is_some() && cache.get("1").is_none());
        assert_eq!((cache.entries.len(), cache.bytes), (MAX_ENTRIES, MAX_ENTRIES));
    }

    #[test]
    fn bytes_are_bounded() {
        let mut cache = EtagCache::default();
        cache.put("large".to_owned(), stored(MAX_BODY + 1));
        assert!(cache.get("large").is_none());
        for number in 0..100 {
            cache.put(number.to_string(), stored(MAX_BODY));
        }
        assert_eq!((cache.entries.len(), cache.bytes), (64, MAX_TOTAL));
        cache.put("99".to_owned(), stored(0));
        assert_eq!(cache.bytes, MAX_TOTAL - MAX_BODY);
    }
}
