//! Parsing of the file, without its entries.

use std::{collections::BTreeMap, path::Path};

use rockbot_service::watch::{FileError, read_bounded};
use serde_json::Value;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of entries.
const MAX_ENTRIES: usize = 1024;

/// Kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum EntryKind {
    /// An entry of `restTools`: one tool.
    Tool,
    /// An entry of `openApi`: a tool for each operation of a document.
    Api,
}

/// The entries of a file, as they are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RestFile {
    /// Entries by kind and name.
    pub(crate) entries: BTreeMap<(EntryKind, String), Value>,
    /// Parts without effect.
    pub(crate) warnings: Vec<String>,
}

/// A file that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum RestFileError {
    /// It cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] FileError),
    /// It has too many entries.
    #[error("it has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is JSON of another form.
    #[error("it must be an object with \"restTools\" or \"openApi\", each an object of entries")]
    UnknownForm,
}

impl RestFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// When it cannot be read or is too large.
    pub(crate) fn read(path: &Path) -> Result<Vec<u8>, RestFileError> {
        Ok(read_bounded(path, MAX_FILE_BYTES)?)
    }

    /// Parses the text of a file. Entries are not validated.
    ///
    /// # Errors
    /// When the file as a whole is unusable.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, RestFileError> {
        let Value::Object(root) = serde_json::from_slice(text)? else {
            return Err(RestFileError::UnknownForm);
        };
        let mut file = Self::default();
        let mut is_known = false;
        for (key, value) in root {
            let kind = match key.as_str() {
                "restTools" => EntryKind::Tool,
                "openApi" => EntryKind::Api,
                _ => {
                    let key: String = key.chars().take(80).collect();
                    file.warnings.push(format!("unknown key {key:?} has no effect"));
                    continue;
                }
            };
            is_known = true;
            let Value::Object(entries) = value else { return Err(RestFileError::UnknownForm) };
            file.entries.extend(entries.into_iter().map(|(name, entry)| ((kind, name), entry)));
        }
        match is_known {
            _ if file.entries.len() > MAX_ENTRIES => Err(RestFileError::TooManyEntries),
            true => Ok(file),
            false => Err(RestFileError::UnknownForm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_entries_are_read() {
        let text = br#"{"restTools": {"a": {}, "b": 1}, "openApi": {"a": {}}, "$schema": "x"}"#;
        let file = RestFile::parse(text).unwrap();
        assert_eq!(file.entries.len(), 3);
        assert!(matches!(file.warnings.as_slice(), [one] if one.contains("$schema")));
    }

    #[test]
    fn other_forms_are_rejected() {
        for text in ["", "{", "[]", "{}", "{\"restTools\": []}", "{\"x\": {}}"] {
            assert!(RestFile::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
