//! How an agent should split long pages.

use std::{fmt::Write as _, time::Duration};

use rockbot_tools::chunk::ChunkHint;
use sha2::{Digest, Sha256};
use url::Url;

/// Beginning of the keys of pages.
const PREFIX: &str = "web-";
/// Longest readable form of an address, in bytes.
const MAX_BYTES: usize = 64;
/// Bytes of it that stay in front of a hash.
const KEPT_BYTES: usize = 55;

/// Limits of the pages that are shown whole, and of the chunks of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunking {
    pub(crate) threshold: usize,
    pub(crate) chunk_chars: usize,
    pub(crate) ttl: Duration,
}

impl Chunking {
    /// Returns the hint for a page that was requested by this address. `raw`: with menus and footers.
    pub(crate) fn hint(self, url: &Url, raw: bool, title: &str) -> ChunkHint {
        ChunkHint {
            threshold: self.threshold,
            chunk_chars: self.chunk_chars,
            stem: format!("{PREFIX}{}", readable(url, raw)),
            ttl: self.ttl,
            title: title.to_owned(),
            fragment: url.fragment().map(|fragment| {
                percent_encoding::percent_decode_str(fragment).decode_utf8_lossy().into_owned()
            }),
        }
    }
}

/// Returns the address in letters, digits, `.`, `-` and `_`, after `raw-` for the raw page and `http-` for
/// a page without TLS. Ends in a hash where two addresses could become the same text.
fn readable(url: &Url, raw: bool) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    let text = url.as_str();
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.strip_prefix("www.").unwrap_or(text);
    let mark = match (raw, url.scheme() == "https") {
        (false, true) => "",
        (false, false) => "http-",
        (true, true) => "raw-",
        (true, false) => "raw-http-",
    };
    let text = format!("{mark}{text}");
    let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    // A host may be called like a mark.
    let is_lossy =
        !mark.is_empty() || text.len() > MAX_BYTES || text.chars().any(|c| !is_kept(c) && c != '/');
    let mut readable: String = text.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    if is_lossy {
        readable.truncate(KEPT_BYTES);
        readable.push('-');
        for byte in &Sha256::digest(url.as_str())[..4] {
            let _ = write!(readable, "{byte:02x}");
        }
    }
    readable
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn readable(url: &str) -> String {
        super::readable(&Url::parse(url).unwrap(), false)
    }

    #[test]
    fn address_becomes_a_key() {
        for (url, expected) in [
            ("https://example.com/docs/a", "example.com_docs_a"),
            ("https://www.example.com/docs/a#part", "example.com_docs_a"),
            ("https://example.com/", "example.com_"),
        ] {
            assert_eq!(readable(url), expected);
        }
        let hashed = readable("https://example.com/a?b=1");
        assert!(hashed.starts_with("example.com_a_b_1-"), "{hashed}");
        assert_eq!(hashed.len(), "example.com_a_b_1".len() + 9);
        assert!(readable("http://example.com/a").starts_with("http-example.com_a-"));
        let raw = super::readable(&Url::parse("https://example.com/a").unwrap(), true);
        assert!(raw.starts_with("raw-example.com_a-"), "{raw}");
        assert_ne!(readable("http://example.com/a"), readable("https://http-example.com/a"));
    }

    #[test]
    fn different_addresses_have_different_keys() {
        let mut keys = BTreeSet::new();
        let long = "path/".repeat(30);
        for number in 0..1000 {
            for url in [
                format!("https://example.com/{long}{number}"),
                format!("https://example.com/{long}?page={number}"),
            ] {
                let key = readable(&url);
                assert!(key.len() <= 64 && key.is_ascii(), "{key}");
                keys.insert(key);
            }
        }
        for url in
            ["https://example.com/a_b", "https://example.com/a/b", "https://example.com/a%2Fb"]
        {
            keys.insert(readable(url));
        }
        assert_eq!(keys.len(), 2003);
    }

    #[test]
    fn hint_is_valid_and_has_the_heading() {
        let chunking =
            Chunking { threshold: 8000, chunk_chars: 4000, ttl: Duration::from_secs(1800) };
        let url = Url::parse("https://example.com/docs/a?x#%C3%9Cber-uns").unwrap();
        let hint = chunking.hint(&url, false, "Title");
        assert_eq!(hint.fragment.as_deref(), Some("Über-uns"));
        let details = serde_json::json!({ChunkHint::KEY: hint.to_value()});
        assert_eq!(ChunkHint::from_details(&details), Some(hint));
    }
}
