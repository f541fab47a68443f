//! The configuration section `[web]`.

use std::time::Duration;

use rockbot_egress::{DialPolicy, PrivateTarget};
use serde::Deserialize;

use crate::chunking::Chunking;

/// The section `[web]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSection {
    /// Ports of pages in addition to 80 and 443. Default: none.
    pub ports: Vec<u16>,
    /// Private addresses, networks and hosts whose pages may be read. Default: none.
    pub allow_private: Vec<String>,
    /// Whether robots.txt decides which pages are read. Default: respect.
    pub robots: RobotsMode,
    /// Largest page, in bytes after decompression; 1 KiB to 32 MiB. Default: 5 MiB.
    pub max_body_bytes: usize,
    /// Longest text of a page, in bytes; 1 KiB to 896 KiB. Default: 768 KiB.
    pub max_markdown_bytes: usize,
    /// Longest text that a model reads at once, in characters; 1,000 to 1,000,000. Default: 8,000.
    pub chunking_threshold: usize,
    /// Size of a chunk of a longer text, in characters; 500 to 64,000. Default: 4,000.
    pub chunk_max_length: usize,
    /// Lifetime of the chunks, in minutes; 1 to 10,080, which are seven days. Default: 30.
    pub chunk_ttl_minutes: u64,
}

/// What robots.txt decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RobotsMode {
    /// A page is read if the rules of its site permit it, by RFC 9309.
    #[default]
    Respect,
    /// The rules are not read.
    Ignore,
}

impl Default for WebSection {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            allow_private: Vec::new(),
            robots: RobotsMode::Respect,
            max_body_bytes: 5 * 1024 * 1024,
            max_markdown_bytes: 768 * 1024,
            chunking_threshold: 8000,
            chunk_max_length: 4000,
            chunk_ttl_minutes: 30,
        }
    }
}

impl WebSection {
    /// Returns all invalid values, for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        const KIB: usize = 1024;
        let mut errors = Vec::new();
        if self.ports.contains(&0) {
            errors.push("web.ports: 0 is not a port".to_owned());
        }
        for target in &self.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                errors.push(format!("web.allow_private: {error}"));
            }
        }
        for (key, value, minimum, maximum) in [
            ("max_body_bytes", self.max_body_bytes, KIB, 32 * KIB * KIB),
            ("max_markdown_bytes", self.max_markdown_bytes, KIB, 896 * KIB),
            ("chunking_threshold", self.chunking_threshold, 1000, 1_000_000),
            ("chunk_max_length", self.chunk_max_length, 500, 64_000),
            (
                "chunk_ttl_minutes",
                usize::try_from(self.chunk_ttl_minutes).unwrap_or(usize::MAX),
                1,
                7 * 24 * 60,
            ),
        ] {
            if !(minimum..=maximum).contains(&value) {
                errors
                    .push(format!("web.{key}: is {value}; set it between {minimum} and {maximum}"));
            }
        }
        errors
    }

    /// Returns the dial policy of pages. `validate` reports invalid targets.
    pub(crate) fn dial_policy(&self) -> DialPolicy {
        DialPolicy {
            // Public pages without TLS exist; private addresses need a permission of their own.
            allow_plain_http: true,
            allow_private: self.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
            allowed_ports: Some([80, 443].into_iter().chain(self.ports.iter().copied()).collect()),
            ..DialPolicy::default()
        }
    }

    pub(crate) fn chunking(&self) -> Chunking {
        Chunking {
            threshold: self.chunking_threshold,
            chunk_chars: self.chunk_max_length,
            ttl: Duration::from_secs(self.chunk_ttl_minutes.saturating_mul(60)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_optional() {
        assert_eq!(serde_json::from_str::<WebSection>("{}").unwrap(), WebSection::default());
        assert!(serde_json::from_str::<WebSection>(r#"{"robot": "ignore"}"#).is_err());
        assert!(WebSection::default().validate().is_empty());
    }

    #[test]
    fn all_invalid_values_are_reported() {
        let section = WebSection {
            ports: vec![0],
            allow_private: vec!["10.0.0.0/8".to_owned(), "no host!".to_owned()],
            max_body_bytes: 0,
            max_markdown_bytes: usize::MAX,
            chunking_threshold: 1,
            chunk_max_length: 1,
            chunk_ttl_minutes: 0,
            ..WebSection::default()
        };
        let errors = section.validate();
        assert_eq!(errors.len(), 7, "{errors:?}");
        assert_eq!(errors[2], "web.max_body_bytes: is 0; set it between 1024 and 33554432");
    }
}
