//! Plans, as a model writes them.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::tool_names::{INVOKE_AGENT, MCP_INVOKE_TOOL};

pub(super) const MAX_PLANS: usize = 10;
pub(super) const MAX_STEPS: usize = 20;
pub(super) const MAX_TOOLS: usize = 32;
pub(super) const MAX_MINUTES: u64 = 30;
pub(super) const DEFAULT_MINUTES: u64 = 5;

/// A plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WispPlan {
    pub(crate) description: String,
    /// Names of the tools that its `Llm` steps may use.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
    pub(crate) steps: Vec<WispStep>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WispStep {
    pub(crate) id: String,
    pub(super) mode: Mode,
    #[serde(default)]
    pub(super) gateway: Gateway,
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    #[serde(default, alias = "input", alias = "arguments")]
    pub(super) params: Map<String, Value>,
    pub(super) prompt: Option<String>,
    /// Name of an agent, one of its skills, and the task for it.
    pub(super) agent: Option<String>,
    pub(super) skill: Option<String>,
    pub(super) message: Option<String>,
    /// Time limit of the task.
    pub(super) timeout_minutes: Option<u64>,
    #[serde(default)]
    pub(super) on_failure: OnFailure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Mode {
    Direct,
    Llm,
}

/// The place of the tool of a `Direct` step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum Gateway {
    /// A tool of the agent.
    #[default]
    Tool,
    /// A tool of an MCP server.
    Mcp,
    /// A Python script.
    Script,
    /// Search and pages.
    Web,
    /// A task for another agent.
    #[serde(rename = "A2A")]
    A2a,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnFailure {
    #[serde(default)]
    pub(super) action: Action,
    pub(super) skip_to: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    #[default]
    Abort,
    SkipTo,
}

/// Reaction to a failed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureAction<'a> {
    /// The plan has failed.
    Abort,
    /// Continue with the step of this id.
    SkipTo(&'a str),
}

/// The work of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepWork {
    /// A call of a tool with arguments that may have templates.
    Call { tool: String, arguments: Value },
    /// A question to the model, which may have templates.
    Ask { prompt: String },
}

impl WispStep {
    /// Returns the work of the step, as it was checked.
    pub(crate) fn work(&self) -> StepWork {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        if self.mode == Mode::Llm {
            return StepWork::Ask { prompt: text(&self.prompt) };
        }
        let params = Value::Object(self.params.clone());
        let (tool, arguments) = match self.gateway {
            Gateway::Tool | Gateway::Web => (text(&self.tool), params),
            Gateway::Script => ("execute_python_script".to_owned(), params),
            Gateway::Mcp => {
                let (server, tool) = (&self.server, &self.tool);
                let call = json!({"server_name": server, "tool_name": tool, "arguments": params});
                (MCP_INVOKE_TOOL.to_owned(), call)
            }
            Gateway::A2a => (INVOKE_AGENT.to_owned(), self.task()),
        };
        StepWork::Call { tool, arguments }
    }

    /// Returns the arguments of the call that hands a task to another agent.
    fn task(&self) -> Value {
        let (agent, skill, message) = (&self.agent, &self.skill, &self.message);
        let mut task = json!({"agent_name": agent, "skill": skill, "message": message});
        if let Some(minutes) = self.timeout_minutes {
            task["timeout_minutes"] = minutes.into();
        }
        if !self.params.is_empty() {
            task["data"] = Value::Object(self.params.clone());
        }
        task
    }

    /// Returns what to do when the step fails.
    pub(crate) fn failure_action(&self) -> FailureAction<'_> {
        match (&self.on_failure.action, &self.on_failure.skip_to) {
            (Action::SkipTo, Some(id)) => FailureAction::SkipTo(id),
            _ => FailureAction::Abort,
        }
    }
}
