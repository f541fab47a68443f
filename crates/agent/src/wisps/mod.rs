//! Wisps: small plans of steps that a model writes, and that run without a model between the steps. A step is a tool
//! call, or a question to the model with a few tools.
//!
//! - `WispPlan`: a plan, checked as a whole before anything runs;
//! - `StepValues`: results of earlier steps, which templates in arguments name;
//! - `WispResult`: how a plan ended, as the model reads it;
//! - `Repetitions`: a bound on plans that are run again and again.
//!
//! The turn runs them.

mod plan;
mod problems;
mod repetitions;
mod request;
mod results;
mod template;

use std::sync::Arc;

use rockbot_contracts::ToolCallId;
use rockbot_tools::{Guide, Tool, ToolHints, ToolSource};
use serde_json::json;

pub(crate) use self::{
    plan::{FailureAction, StepWork, WispPlan, WispStep},
    repetitions::Repetitions,
    request::WispRequest,
    results::{FailureCategory, StepFailure, WispResult, results_text},
    template::{StepValues, TemplateError},
};
use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, accept},
    derived_id::derived_id,
    tool_names::SPAWN_WISPS,
};

/// Length of the id of a step's call in hexadecimal digits.
const STEP_ID_CHARS: usize = 32;

/// The guide on wisps.
pub const GUIDE: Guide = Guide {
    name: "wisps",
    summary: "Running several fixed sequences of tool calls at once: plans, templates, failures",
    markdown: include_str!("../../guides/wisps.md"),
};

/// Returns the id of the call of a step: the same when the plans are run again.
pub(crate) fn step_call(outer: &ToolCallId, plan: usize, step: &str) -> Option<ToolCallId> {
    let id = derived_id(&["wisp-step", outer.as_str(), &plan.to_string(), step], STEP_ID_CHARS);
    ToolCallId::new(id).ok()
}

/// Returns the tool that runs plans, with the permission and the approval of each call.
pub(crate) fn tool() -> Arc<dyn Tool> {
    let step = json!({"type": "object", "required": ["id", "mode"], "properties": {
        "id": {"type": "string"},
        "mode": {"type": "string", "enum": ["Direct", "Llm"]},
        "gateway": {"type": "string", "enum": ["Tool", "Mcp", "Script", "Web", "A2A"]},
        "server": {"type": "string"}, "tool": {"type": "string"}, "params": {"type": "object"},
        "prompt": {"type": "string"},
        "agent": {"type": "string"}, "skill": {"type": "string"}, "message": {"type": "string"},
        "timeout_minutes": {"type": "integer", "minimum": 1, "maximum": plan::MAX_MINUTES},
        "on_failure": {"type": "object", "properties": {
            "action": {"type": "string", "enum": ["abort", "skip_to"]},
            "skip_to": {"type": "string"}}},
    }});
    let plan = json!({"type": "object", "required": ["description", "steps"], "properties": {
        "description": {"type": "string"},
        "tools": {"type": "array", "maxItems": plan::MAX_TOOLS, "items": {"type": "string"}},
        "steps": {"type": "array", "minItems": 1, "maxItems": plan::MAX_STEPS, "items": step},
    }});
    let plans = json!({"type": "array", "minItems": 1, "maxItems": plan::MAX_PLANS, "items": plan});
    let definition = BuiltinDefinition {
        name: SPAWN_WISPS,
        description: "Run up to 10 small plans at once and wait for all of them. A plan is a list of steps: `Direct` \
                      calls a tool, `Llm` asks a model that may use the plan's `tools`, `A2A` asks another agent. \
                      `{{steps.ID.result}}` in a text of a step stands for the result of an earlier one. Read the guide \
                      `wisps` first.",
        arguments: json!({
            // Some models send one plan, or JSON in a text.
            "definitions": {"anyOf": [plans, plan, {"type": "string"}]},
            "timeout_minutes": {"type": "integer", "minimum": 1, "maximum": plan::MAX_MINUTES,
                "default": plan::DEFAULT_MINUTES},
        }),
        required: &["definitions"],
        source: ToolSource::Wisp,
        hints: ToolHints::READ_ONLY,
    };
    BuiltinTool::create(&Arc::new(()), definition, accept)
}
