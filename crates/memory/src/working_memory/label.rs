//! The metadata of an entry.

use serde::{Deserialize, Serialize};

/// The metadata of an entry, stored separately so that lists do not read the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Label {
    /// The id under which the data is stored.
    pub(super) data: String,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) category: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<String>,
    /// In milliseconds since the Unix epoch.
    pub(super) saved_at: i64,
}
