//! The state of the configuration, for operators.

use rockbot_tools::ToolRegistration;

use crate::api::SkippedTool;

/// The entries of the file, their tools and their problems.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestStatus {
    /// Entries that are not switched off: tools first, then APIs, by name.
    pub entries: Vec<EntryStatus>,
    /// Problems of the file as a whole.
    pub problems: Vec<String>,
    /// Parts of the file without effect.
    pub warnings: Vec<String>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryStatus {
    /// Name of the entry.
    pub name: String,
    /// `true` for an entry of `openApi`, `false` for one of `restTools`.
    pub is_api: bool,
    /// Definitions of the tools that it offers.
    pub tools: Vec<ToolRegistration>,
    /// Operations that are not offered.
    pub skipped: Vec<SkippedTool>,
    /// Why it offers no tools, or not all.
    pub problems: Vec<String>,
    /// Parts without effect.
    pub warnings: Vec<String>,
}

impl RestStatus {
    /// Returns `true` if there are no problems. Skipped operations are not problems.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty() && self.entries.iter().all(|entry| entry.problems.is_empty())
    }
}
