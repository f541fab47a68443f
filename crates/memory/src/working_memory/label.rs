//! The part of an entry that is read without its data.

use serde::{Deserialize, Serialize};

/// An entry without its data, stored apart so that a list reads no data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Label {
    /// Where its data is.
    pub(super) data: String,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) category: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<String>,
    /// In milliseconds since the Unix epoch.
    pub(super) saved_at: i64,
}
