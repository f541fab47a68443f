//! Plans, as a model writes them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::problems::check;

pub(super) const MAX_PLANS: usize = 10;
pub(super) const MAX_STEPS: usize = 20;
pub(super) const MAX_TOOLS: usize = 32;
pub(super) const MAX_MINUTES: u64 = 30;
pub(super) const DEFAULT_MINUTES: u64 = 5;

/// The plans of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WispRequest {
    pub(crate) plans: Vec<WispPlan>,
    /// Time limit of all of them.
    pub(crate) timeout: Duration,
}

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    definitions: Value,
    #[serde(default = "default_minutes")]
    timeout_minutes: u64,
}

const fn default_minutes() -> u64 {
    DEFAULT_MINUTES
}

impl WispRequest {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// Returns all problems of the plans, one in a line. Nothing may run then.
    pub(crate) fn parse(arguments: &str) -> Result<Self, String> {
        let Arguments { definitions, timeout_minutes } =
            serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        if !(1..=MAX_MINUTES).contains(&timeout_minutes) {
            return Err(format!("timeout_minutes must be 1 to {MAX_MINUTES}"));
        }
        let definitions = match definitions {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|error| format!("definitions is no valid JSON: {error}"))?,
            other => other,
        };
        let written = match definitions {
            Value::Array(written) => written,
            one => vec![one],
        };
        if written.is_empty() || written.len() > MAX_PLANS {
            return Err(format!("{} definitions; send 1 to {MAX_PLANS}", written.len()));
        }
        let (mut plans, mut problems) = (Vec::new(), Vec::new());
        for (number, value) in (1..).zip(written) {
            match serde_json::from_value::<WispPlan>(value) {
                Ok(plan) => {
                    let found = check(&plan).into_iter();
                    problems.extend(found.map(|one| format!("definition {number}: {one}")));
                    plans.push(plan);
                }
                Err(error) => problems.push(format!("definition {number}: {error}")),
            }
        }
        let timeout = Duration::from_secs(timeout_minutes * 60);
        if problems.is_empty() { Ok(Self { plans, timeout }) } else { Err(problems.join("\n")) }
    }
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
                ("mcp_invoke_tool".to_owned(), call)
            }
        };
        StepWork::Call { tool, arguments }
    }

    /// Returns what to do when the step fails.
    pub(crate) fn failure_action(&self) -> FailureAction<'_> {
        match (&self.on_failure.action, &self.on_failure.skip_to) {
            (Action::SkipTo, Some(id)) => FailureAction::SkipTo(id),
            _ => FailureAction::Abort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(definitions: Value) -> String {
        WispRequest::parse(&json!({"definitions": definitions}).to_string()).unwrap_err()
    }

    fn direct(id: &str, tool: &str, params: Value) -> Value {
        json!({"id": id, "mode": "Direct", "tool": tool, "params": params})
    }

    #[test]
    fn plan_is_accepted_in_each_form() {
        let plan = json!({"description": "Reads.", "steps": [
            {"id": "a", "mode": "Direct", "gateway": "Mcp", "server": "time", "tool": "now",
                "input": {"zone": "UTC"}},
            {"id": "b", "mode": "Llm", "prompt": "Say {{steps.a.result}}",
                "on_failure": {"action": "abort"}},
        ]});
        for definitions in [json!([plan]), plan.clone(), json!(plan.to_string())] {
            let arguments = json!({"definitions": definitions, "timeout_minutes": 2});
            let request = WispRequest::parse(&arguments.to_string()).unwrap();
            assert_eq!((request.plans.len(), request.timeout.as_secs()), (1, 120));
            let StepWork::Call { tool, arguments } = request.plans[0].steps[0].work() else {
                panic!("no call")
            };
            let call = json!({"server_name": "time", "tool_name": "now",
                "arguments": {"zone": "UTC"}});
            assert_eq!((tool.as_str(), arguments), ("mcp_invoke_tool", call));
        }
    }

    #[test]
    fn every_problem_is_reported() {
        let plan = json!({"description": " ", "tools": [""], "steps": [
            direct("A b", "read", json!({})),
            direct("same", "read", json!({"x": "{{steps.later.result}} {{steps.gone.result}}"})),
            {"id": "same", "mode": "Llm"},
            {"id": "later", "mode": "Direct", "gateway": "Mcp", "tool": "now"},
            {"id": "back", "mode": "Direct", "tool": "x",
                "on_failure": {"action": "skip_to", "skip_to": "same"}},
            {"id": "web", "mode": "Direct", "gateway": "Web", "tool": "bash"},
            {"id": "last", "mode": "Direct", "tool": "x", "on_failure": {"action": "skip_to"}},
        ]});
        let found = problems(json!([plan, {"description": "x"}]));
        for part in [
            "definition 1: description is empty",
            "tools has an empty name",
            "id `A b` must have 1 to 32 of a-z, 0-9, `_` and `-`",
            "step 3: id `same` is used twice",
            "step 2: template names `later`, which is no earlier step",
            "step 2: template names `gone`, which is no earlier step",
            "step 3: `prompt` is missing",
            "step 4: `server` is missing",
            "step 5: skip_to `same` is no later step",
            "step 6: `tool` must be web_search or web_browse",
            "step 7: skip_to is missing",
            "definition 2: missing field `steps`",
        ] {
            assert!(found.contains(part), "no {part:?} in:\n{found}");
        }
    }

    #[test]
    fn numbers_are_bounded() {
        let plan = json!({"description": "x", "steps": [direct("a", "x", json!({}))]});
        assert!(problems(json!(vec![plan.clone(); 11])).contains("11 definitions; send 1 to 10"));
        assert!(problems(json!([])).contains("send 1 to 10"));
        let steps: Vec<_> = (0..21).map(|n| direct(&format!("s{n}"), "x", json!({}))).collect();
        let many = json!({"description": "x", "steps": steps});
        assert!(problems(many).contains("21 steps; send 1 to 20"));
        let late = json!({"definitions": plan, "timeout_minutes": 31}).to_string();
        assert!(WispRequest::parse(&late).unwrap_err().contains("1 to 30"));
    }
}
