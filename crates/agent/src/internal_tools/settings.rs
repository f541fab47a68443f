//! `[internal]` of a definition.

use serde::Deserialize;
use serde_json::Value;

/// The internal tools that an agent has. Default: none.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InternalTools {
    /// Offer `agent__final_report`, which ends the turn with its content as the answer. Default false.
    pub final_report: bool,
    /// Offer `agent__task_status`, which shows the user how far the task is. Default false.
    pub task_status: bool,
    /// Offer `agent__batch`, which makes several tool calls in one. Default false.
    pub batch: bool,
    /// Format of the final report. Default `markdown`.
    pub report_format: ReportFormat,
    /// JSON Schema of the content of a report with `report_format = "json"`: of an object, at most 16 KiB. Default:
    /// any object.
    pub report_schema: Option<Value>,
}

/// Format of a final report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// Plain text.
    Text,
    /// Markdown. The default.
    #[default]
    Markdown,
    /// A JSON object.
    Json,
}

impl ReportFormat {
    /// Returns the name of the format.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markdown => "markdown",
            Self::Json => "json",
        }
    }
}
