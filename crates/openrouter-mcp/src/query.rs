//! Queries to OpenRouter.

use std::fmt;

use reqwest::Url;
use serde_json::{Value, json};

const MAX_IDENTIFIER_BYTES: usize = 128;

/// An id issued by OpenRouter: 1 to 128 letters, digits, `_` or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier(String);

/// A text that is not a valid id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {MAX_IDENTIFIER_BYTES} letters, digits, `_` or `-`")]
pub struct InvalidIdentifier;

impl Identifier {
    /// Validates an id.
    ///
    /// # Errors
    /// When its length or a character is invalid.
    pub fn new(text: &str) -> Result<Self, InvalidIdentifier> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = (1..=MAX_IDENTIFIER_BYTES).contains(&text.len());
        if fits && text.bytes().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidIdentifier)
        }
    }

    /// Returns the JSON Schema of an id.
    pub(crate) fn schema(description: &str) -> Value {
        let pattern = format!("^[A-Za-z0-9_-]{{1,{MAX_IDENTIFIER_BYTES}}}$");
        json!({ "type": "string", "description": description, "pattern": pattern })
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A query to OpenRouter. All queries are read-only `GET` requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Credits bought and used. Requires a management key.
    Credits,
    /// Limits and usage of the key in use.
    CurrentKey,
    /// Every model, with its prices.
    Models,
    /// The account's keys, the first hundred. Requires a management key.
    Keys,
    /// One of the account's keys, by its hash. Requires a management key.
    Key(Identifier),
    /// Tokens and cost of one generation.
    Generation(Identifier),
}

impl Query {
    /// Returns its URL below `base`, which is an `http` or `https` URL.
    #[must_use]
    pub fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        let (first, second) = match self {
            Self::Credits => ("credits", None),
            Self::CurrentKey => ("key", None),
            Self::Models => ("models", None),
            Self::Keys => ("keys", None),
            Self::Key(hash) => ("keys", Some(hash)),
            Self::Generation(_) => ("generation", None),
        };
        // Only a URL without a host has no segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(first);
            segments.extend(second.map(|identifier| &identifier.0));
        }
        if let Self::Generation(id) = self {
            url.query_pairs_mut().append_pair("id", &id.0);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &Query, expected: &str) {
        for base in ["https://host/api/v1", "https://host/api/v1/"] {
            let url = query.url(&Url::parse(base).unwrap());
            assert_eq!(url.as_str(), format!("https://host/api/v1/{expected}"));
        }
    }

    #[test]
    fn every_query_has_its_url() {
        let id = Identifier::new("gen-1_a").unwrap();
        check(&Query::Credits, "credits");
        check(&Query::CurrentKey, "key");
        check(&Query::Models, "models");
        check(&Query::Keys, "keys");
        check(&Query::Key(id.clone()), "keys/gen-1_a");
        check(&Query::Generation(id), "generation?id=gen-1_a");
    }

    #[test]
    fn identifier_cannot_change_the_path() {
        let longest = "a".repeat(MAX_IDENTIFIER_BYTES);
        assert!(Identifier::new(&longest).is_ok());
        for text in ["", "..", ".", "a/b", "a%2fb", "a?b", "a#b", "a b", "ä", "a\n", "a&id=b"] {
            assert_eq!(Identifier::new(text), Err(InvalidIdentifier), "{text:?}");
        }
        assert_eq!(Identifier::new(&(longest + "a")), Err(InvalidIdentifier));
    }
}
