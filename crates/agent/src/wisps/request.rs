//! The plans of a call, which are checked as a whole.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{
    plan::{DEFAULT_MINUTES, MAX_MINUTES, MAX_PLANS, StepWork, WispPlan},
    problems::check,
};
use crate::tool_names::starts_work;

/// The plans of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WispRequest {
    pub(crate) plans: Vec<WispPlan>,
    /// Time limit of all of them.
    pub(crate) timeout: Duration,
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

    /// Returns the number of turns that the plans start, here or at other agents, if they run all of their steps. An
    /// estimate for results that do not record it.
    pub(crate) fn delegations(&self) -> u64 {
        let steps = self.plans.iter().flat_map(|plan| &plan.steps);
        let starts = steps.filter(|step| match step.work() {
            StepWork::Ask { .. } => true,
            StepWork::Call { tool, .. } => starts_work(&tool),
        });
        starts.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests write JSON in place")]
    fn problems(definitions: Value) -> String {
        WispRequest::parse(&json!({"definitions": definitions}).to_string()).unwrap_err()
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests write JSON in place")]
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
    fn steps_that_start_turns_are_delegations() {
        let plan = json!({"description": "x", "steps": [
            direct("a", "read_file", json!({})),
            direct("b", "agent__writer", json!({})),
            {"id": "c", "mode": "Llm", "prompt": "x"},
            {"id": "d", "mode": "Direct", "gateway": "A2A", "agent": "peer", "skill": "s", "message": "m"},
        ]});
        let arguments = json!({"definitions": [plan.clone(), plan]}).to_string();
        assert_eq!(WispRequest::parse(&arguments).unwrap().delegations(), 6);
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
