//! `router__handoff-to`: passes the message of the user on.

use std::sync::Arc;

use rockbot_tools::{Tool, ToolFailure, ToolHints, ToolSource};
use serde::Deserialize;
use serde_json::json;

use super::RouterRules;
use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, accept},
    tool_names::HANDOFF,
};

/// Longest note to the destination, in bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;

/// Arguments of the tool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct HandoffArguments {
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl HandoffArguments {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// [`ToolFailure::InvalidArguments`].
    pub(crate) fn parse(arguments: &str) -> Result<Self, ToolFailure> {
        let parsed: Self = serde_json::from_str(arguments)
            .map_err(|_| ToolFailure::invalid("`agent` must name a destination"))?;
        if parsed.message.len() > MAX_NOTE_BYTES {
            return Err(ToolFailure::invalid("`message` must have at most 8 KiB"));
        }
        Ok(parsed)
    }
}

impl RouterRules {
    /// Returns the tool; `None` without destinations.
    pub(crate) fn tool(&self) -> Option<Arc<dyn Tool>> {
        if self.destinations.is_empty() {
            return None;
        }
        let definition = BuiltinDefinition {
            name: HANDOFF,
            description: "Hand the user's message off to another agent, which answers the user. It ends your \
                          turn: call it alone. The agent reads the user's words and your note, not this \
                          conversation.",
            arguments: json!({
                "agent": {"type": "string", "enum": self.destinations},
                "message": {"type": "string", "maxLength": MAX_NOTE_BYTES,
                    "description": "A note to the agent: facts of this conversation that it needs."},
            }),
            required: &["agent"],
            source: ToolSource::Internal,
            hints: ToolHints::READ_ONLY,
        };
        Some(BuiltinTool::create(&Arc::new(()), definition, accept))
    }
}
