//! Problems of a plan, all of which are reported before anything runs.

use std::collections::HashSet;

use super::{
    plan::{Action, Gateway, MAX_MINUTES, MAX_STEPS, MAX_TOOLS, Mode, WispPlan, WispStep},
    template,
};

const MAX_ID_BYTES: usize = 32;
const MAX_DESCRIPTION_BYTES: usize = 1024;
const MAX_TOOL_BYTES: usize = 128;
const MAX_PROMPT_BYTES: usize = 32 * 1024;

/// Returns the problems of a plan.
pub(super) fn check(plan: &WispPlan) -> Vec<String> {
    let mut problems = Vec::new();
    let mut problem = |text: String| problems.push(text);
    if plan.description.trim().is_empty() {
        problem("description is empty".to_owned());
    }
    if plan.description.len() > MAX_DESCRIPTION_BYTES {
        problem("description is longer than 1 KiB".to_owned());
    }
    if plan.tools.len() > MAX_TOOLS {
        problem(format!("{} tools; name at most {MAX_TOOLS}", plan.tools.len()));
    }
    if plan.tools.iter().any(|tool| tool.is_empty() || tool.len() > MAX_TOOL_BYTES) {
        problem("tools has an empty name, or one of more than 128 bytes".to_owned());
    }
    let steps = plan.steps.len();
    if steps == 0 || steps > MAX_STEPS {
        problem(format!("{steps} steps; send 1 to {MAX_STEPS}"));
    }
    let mut earlier = HashSet::new();
    for (number, step) in (1..).zip(&plan.steps) {
        let mut found = check_fields(step);
        if !earlier.is_empty() && earlier.contains(step.id.as_str()) {
            found.push(format!("id `{}` is used twice", shown(&step.id)));
        }
        let texts = [&step.prompt, &step.agent, &step.skill, &step.message];
        let texts = texts.into_iter().flatten().map(String::as_str);
        for name in template::names(texts, &step.params) {
            if !earlier.contains(name.as_str()) {
                found.push(format!("template names `{}`, which is no earlier step", shown(&name)));
            }
        }
        found.extend(check_skip(plan, number, step));
        earlier.insert(step.id.as_str());
        found.into_iter().for_each(|one| problem(format!("step {number}: {one}")));
    }
    problems
}

fn check_fields(step: &WispStep) -> Vec<String> {
    let mut problems = Vec::new();
    let is_allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let id = &step.id;
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.chars().all(is_allowed) {
        problems.push(format!("id `{}` must have 1 to 32 of a-z, 0-9, `_` and `-`", shown(id)));
    }
    let is_given =
        |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
    let mut require = |name: &str, text: &Option<String>| {
        if !is_given(text) {
            problems.push(format!("`{name}` is missing"));
        }
    };
    match (step.mode, step.gateway) {
        (Mode::Llm, _) => require("prompt", &step.prompt),
        (Mode::Direct, Gateway::Mcp) => {
            require("server", &step.server);
            require("tool", &step.tool);
        }
        (Mode::Direct, Gateway::A2a) => {
            require("agent", &step.agent);
            require("skill", &step.skill);
            require("message", &step.message);
        }
        (Mode::Direct, Gateway::Tool) => require("tool", &step.tool),
        (Mode::Direct, Gateway::Script) => {}
        (Mode::Direct, Gateway::Web) => {
            let is_web = |tool: &str| matches!(tool, "web_search" | "web_browse");
            if !step.tool.as_deref().is_some_and(is_web) {
                problems.push("`tool` must be web_search or web_browse".to_owned());
            }
        }
    }
    for (name, text) in [("prompt", &step.prompt), ("message", &step.message)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_PROMPT_BYTES) {
            problems.push(format!("{name} is longer than 32 KiB"));
        }
    }
    if step.timeout_minutes.is_some_and(|minutes| !(1..=MAX_MINUTES).contains(&minutes)) {
        problems.push(format!("timeout_minutes must be 1 to {MAX_MINUTES}"));
    }
    problems
}

/// Checks that a failed step continues with a later one.
fn check_skip(plan: &WispPlan, number: usize, step: &WispStep) -> Option<String> {
    if step.on_failure.action != Action::SkipTo {
        return None;
    }
    let Some(target) = &step.on_failure.skip_to else {
        return Some("skip_to is missing".to_owned());
    };
    let is_later = plan.steps[number..].iter().any(|later| later.id == *target);
    (!is_later).then(|| format!("skip_to `{}` is no later step", shown(target)))
}

/// Returns a name for a message, without long or hidden text.
fn shown(name: &str) -> String {
    name.chars().take(MAX_ID_BYTES).flat_map(char::escape_default).collect()
}
