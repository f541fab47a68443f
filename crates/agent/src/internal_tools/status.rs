//! `agent__task_status`: shows how far the task is.

use futures_util::future::BoxFuture;
use rockbot_tools::{ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::Deserialize;
use serde_json::{Value, json};

use super::InternalTools;
use crate::{
    builtin_tool::{BuiltinDefinition, parse_arguments},
    tool_names::TASK_STATUS,
};

/// Longest of its texts, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Arguments of the tool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct TaskStatusArguments {
    pub(crate) status: String,
    pub(crate) done: String,
    pub(crate) pending: String,
    pub(crate) now: String,
    #[serde(default)]
    ready_for_final_report: bool,
    #[serde(default)]
    need_to_run_more_tools: bool,
}

impl TaskStatusArguments {
    /// Reads the arguments of an accepted call.
    pub(crate) fn parse(arguments: &str) -> Option<Self> {
        serde_json::from_str(arguments).ok()
    }

    fn is_completed(&self) -> bool {
        self.status == "completed"
    }

    /// Returns `true` if the turn should end with its next response.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_completed() && self.ready_for_final_report && !self.need_to_run_more_tools
    }

    /// Returns the status as one line.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}", self.status, self.now)
    }
}

pub(super) fn definition() -> BuiltinDefinition {
    let text = |description: &str| json!({"type": "string", "maxLength": MAX_TEXT_CHARS, "description": description});
    BuiltinDefinition {
        name: TASK_STATUS,
        description: "Show the user how far the task is. Call it together with the next tools; alone it uses up a \
                      step.",
        arguments: json!({
            "status": {"type": "string", "enum": ["starting", "in-progress", "completed"]},
            "done": text("The finished part."),
            "pending": text("The remaining part."),
            "now": text("Your current work."),
            "ready_for_final_report": {"type": "boolean", "default": false},
            "need_to_run_more_tools": {"type": "boolean", "default": false},
        }),
        required: &["status", "done", "pending", "now"],
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
    }
}

pub(super) fn check<'a>(
    _: &'a InternalTools,
    arguments: Value,
    _: &'a ToolContext,
) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
    let checked = parse_arguments::<TaskStatusArguments>(arguments).map(|status| {
        let completed = status.is_completed();
        ToolResult::text(json!({"status": "ok", "taskStatusCompleted": completed}).to_string())
    });
    Box::pin(std::future::ready(checked))
}
