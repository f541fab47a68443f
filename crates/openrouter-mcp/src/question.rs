//! What can be asked of OpenRouter.

use std::fmt;

use reqwest::Url;
use serde_json::{Value, json};

const MAX_IDENTIFIER_BYTES: usize = 128;

/// An id that OpenRouter gave out: 1 to 128 letters, digits, `_` or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier(String);

/// A text that can't be an id of OpenRouter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {MAX_IDENTIFIER_BYTES} letters, digits, `_` or `-`")]
pub struct InvalidIdentifier;

impl Identifier {
    /// Takes a text that can be one.
    ///
    /// # Errors
    /// When it has another length, or any other character.
    pub fn new(text: &str) -> Result<Self, InvalidIdentifier> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = (1..=MAX_IDENTIFIER_BYTES).contains(&text.len());
        if fits && text.bytes().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidIdentifier)
        }
    }

    /// The JSON Schema of one.
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

/// One question to OpenRouter. All of them are `GET`s that change nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Credits bought and used. Takes a management key.
    Credits,
    /// Limits and usage of the key in use.
    CurrentKey,
    /// Every model, with its prices.
    Models,
    /// The account's keys, a hundred of them. Takes a management key.
    Keys,
    /// One of the account's keys, by its hash. Takes a management key.
    Key(Identifier),
    /// Tokens and cost of one generation.
    Generation(Identifier),
}

impl Question {
    /// Its address below `base`, which is an `http` or `https` URL.
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
    fn check(question: &Question, expected: &str) {
        for base in ["https://host/api/v1", "https://host/api/v1/"] {
            let url = question.url(&Url::parse(base).unwrap());
            assert_eq!(url.as_str(), format!("https://host/api/v1/{expected}"));
        }
    }

    #[test]
    fn every_question_has_its_address() {
        let id = Identifier::new("gen-1_a").unwrap();
        check(&Question::Credits, "credits");
        check(&Question::CurrentKey, "key");
        check(&Question::Models, "models");
        check(&Question::Keys, "keys");
        check(&Question::Key(id.clone()), "keys/gen-1_a");
        check(&Question::Generation(id), "generation?id=gen-1_a");
    }

    #[test]
    fn an_identifier_cannot_lead_elsewhere() {
        let longest = "a".repeat(MAX_IDENTIFIER_BYTES);
        assert!(Identifier::new(&longest).is_ok());
        for text in ["", "..", ".", "a/b", "a%2fb", "a?b", "a#b", "a b", "ä", "a\n", "a&id=b"] {
            assert_eq!(Identifier::new(text), Err(InvalidIdentifier), "{text:?}");
        }
        assert_eq!(Identifier::new(&(longest + "a")), Err(InvalidIdentifier));
    }
}
