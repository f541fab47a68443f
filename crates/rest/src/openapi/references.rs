//! References within a document.

use percent_encoding::percent_decode_str;
use rockbot_contracts::outside_text;
use serde_json::Value;

/// Maximum number of references that are followed from one to the next.
const MAX_CHAIN: usize = 32;
/// Maximum length of a reference in an error, in characters.
const MAX_SHOWN_CHARS: usize = 120;

/// Reason why a reference cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReferenceError {
    /// It leads to another document.
    #[error("refers to another document ({0}); bundle the documents into one")]
    External(String),
    /// It leads to nothing.
    #[error("refers to {0}, which does not exist in the document")]
    Unresolved(String),
    /// It leads to itself.
    #[error("refers to {0}, which refers to itself")]
    Circular(String),
}

/// Resolves the references of one document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolver<'a> {
    root: &'a Value,
    /// URI of the document itself, of `OpenAPI` 3.2.
    own: Option<&'a str>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let own = root["$self"].as_str().map(|own| own.split('#').next().unwrap_or(own));
        Self { root, own: own.filter(|own| !own.is_empty()) }
    }

    /// Returns the JSON pointer of a reference within the document.
    ///
    /// # Errors
    /// [`ReferenceError::External`]
    pub(super) fn pointer(&self, reference: &str) -> Result<String, ReferenceError> {
        let shown = || outside_text::plain(reference, MAX_SHOWN_CHARS);
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if !document.is_empty() && Some(document) != self.own {
            return Err(ReferenceError::External(shown()));
        }
        let fragment = percent_decode_str(fragment).decode_utf8_lossy().into_owned();
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(fragment);
        }
        Err(ReferenceError::Unresolved(shown()))
    }

    /// Returns the value at a JSON pointer.
    ///
    /// # Errors
    /// [`ReferenceError::Unresolved`]
    pub(super) fn at(&self, pointer: &str) -> Result<&'a Value, ReferenceError> {
        self.root.pointer(pointer).ok_or_else(|| {
            let shown = outside_text::plain(&format!("#{pointer}"), MAX_SHOWN_CHARS);
            ReferenceError::Unresolved(shown)
        })
    }

    /// Returns the value itself, or the end of its references.
    ///
    /// # Errors
    /// See [`ReferenceError`].
    pub(super) fn follow(&self, value: &'a Value) -> Result<&'a Value, ReferenceError> {
        let mut value = value;
        for _ in 0..MAX_CHAIN {
            let Some(Value::String(reference)) = value.get("$ref") else { return Ok(value) };
            value = self.at(&self.pointer(reference)?)?;
        }
        let reference = value["$ref"].as_str().unwrap_or_default();
        Err(ReferenceError::Circular(outside_text::plain(reference, MAX_SHOWN_CHARS)))
    }
}
