//! Tools that steer the turn that calls them: the final report, the status of the task, and several calls in one.
//!
//! A definition enables them. The turn does their work: the tools themselves only check the arguments.

mod report;
mod settings;
mod status;

use std::sync::Arc;

use rockbot_tools::{Tool, ToolHints, ToolRegistration, ToolSource};
use serde_json::json;

pub use self::settings::{InternalTools, ReportFormat};
pub(crate) use self::{
    report::{FinalReport, text_of_invalid},
    status::TaskStatusArguments,
};
use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, accept},
    conversation::MAX_BATCH_CALLS,
    handoff::RouterRules,
    tool_names::BATCH,
    wisps,
};

impl InternalTools {
    /// Returns the enabled tools.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let settings = Arc::new(self.clone());
        let mut tools = Vec::new();
        if self.final_report {
            tools.push(BuiltinTool::create(&settings, report::definition(self), report::check));
        }
        if self.task_status {
            tools.push(BuiltinTool::create(&settings, status::definition(), status::check));
        }
        if self.batch {
            tools.push(BuiltinTool::create(&settings, batch_definition(), accept));
        }
        if self.wisps {
            tools.push(wisps::tool());
        }
        tools
    }
}

/// Returns the definitions of all internal tools, as of an agent that enables them.
#[must_use]
pub fn registrations() -> Vec<ToolRegistration> {
    let enabled = InternalTools {
        final_report: true,
        task_status: true,
        batch: true,
        wisps: true,
        ..InternalTools::default()
    };
    let router = RouterRules { destinations: vec!["agent".to_owned()] };
    let tools = enabled.tools().into_iter().chain(router.tool());
    tools.map(|tool| tool.registration().clone()).collect()
}

fn batch_definition() -> BuiltinDefinition {
    BuiltinDefinition {
        name: BATCH,
        description: "Make several independent tool calls in one, and get their results together. Each call needs \
                      its own permission and approval.",
        arguments: json!({
            "calls": {"type": "array", "minItems": 1, "maxItems": MAX_BATCH_CALLS, "items": {
                "type": "object", "required": ["id", "tool", "parameters"],
                "additionalProperties": false,
                "properties": {
                    "id": {"type": ["string", "integer"],
                        "description": "Your id of the call, unique in the batch."},
                    "tool": {"type": "string", "minLength": 1, "description": "Name of the tool."},
                    "parameters": {"type": "object", "description": "Its arguments."},
                }}},
        }),
        required: &["calls"],
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
    }
}
