//! `[[subagents.tool]]` of a definition.

use std::{collections::BTreeSet, time::Duration};

use rockbot_contracts::period;
use rockbot_tools::{
    ToolFilter,
    names::{MAX_NAME_BYTES as MAX_TOOL_NAME_BYTES, namespaced},
};
use serde::Deserialize;

const MAX_TOOLS: usize = 16;
const MAX_NAME_BYTES: usize = 48;
const MAX_DESCRIPTION_BYTES: usize = 1024;
const MAX_PROMPT_BYTES: usize = 64 * 1024;
const MAX_ITERATIONS: u32 = 100;
/// Shortest and longest time limit.
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// The sub-agents that an agent has as tools. Default: none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubagentRules {
    /// The tools, at most 16.
    pub tool: Vec<SubagentTool>,
}

/// A sub-agent as a tool, `subagent__{name}`, with the argument `task`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentTool {
    /// Name, 1 to 48 letters, digits, `_` or `-`.
    pub name: String,
    /// Description for the model that calls it, at most 1,024 bytes.
    pub description: String,
    /// The system prompt, instead of that of the agent, at most 64 KiB.
    pub prompt: String,
    /// The model, at the server of the agent's tier. Default: that of the agent. Its cost is known if the provider
    /// reports it.
    #[serde(default)]
    pub model: Option<String>,
    /// The tools that it may use, of those that the caller may use. Default: all but sub-agents.
    #[serde(default)]
    pub tools: ToolFilter,
    /// Maximum number of model requests with tools, 1 to 100. Default 10.
    #[serde(default = "default_iterations")]
    pub max_iterations: u32,
    /// Time limit of a call, 1 s to 1 h. Default 5 min.
    #[serde(default = "default_timeout", deserialize_with = "period::duration")]
    pub timeout: Duration,
}

const fn default_iterations() -> u32 {
    10
}

const fn default_timeout() -> Duration {
    Duration::from_secs(300)
}

impl SubagentRules {
    /// Returns the problem of the rules, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.tool.len() > MAX_TOOLS {
            return Some(format!("has more than {MAX_TOOLS} tools"));
        }
        let names: BTreeSet<_> = self.tool.iter().map(SubagentTool::tool_name).collect();
        if names.len() < self.tool.len() {
            return Some("has two tools of the same name".to_owned());
        }
        self.tool.iter().find_map(|tool| {
            let problem = tool.problem()?;
            Some(format!("{:?} {problem}", tool.name))
        })
    }
}

impl SubagentTool {
    /// Returns the name of the tool.
    pub(crate) fn tool_name(&self) -> String {
        namespaced("subagent", &self.name, MAX_TOOL_NAME_BYTES)
    }

    fn problem(&self) -> Option<&'static str> {
        let Self { name, description, prompt, model, max_iterations, timeout, .. } = self;
        let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Some("must be 1 to 48 letters, digits, `_` or `-`");
        }
        if description.trim().is_empty() || description.len() > MAX_DESCRIPTION_BYTES {
            return Some("needs a description of at most 1,024 bytes");
        }
        if prompt.trim().is_empty() || prompt.len() > MAX_PROMPT_BYTES {
            return Some("needs a prompt of at most 64 KiB");
        }
        if model.as_ref().is_some_and(|model| model.trim().is_empty()) {
            return Some("has an empty model; omit it for that of the agent");
        }
        if !(1..=MAX_ITERATIONS).contains(max_iterations) {
            return Some("needs max_iterations from 1 to 100");
        }
        (!TIMEOUTS.contains(timeout)).then_some("needs a timeout from 1 s to 1 h, such as \"5m\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> SubagentRules {
        toml::from_str(text).unwrap()
    }

    const TOOL: &str = "[[tool]]\nname = 'reviewer'\ndescription = 'd'\nprompt = 'p'\n";

    #[test]
    fn tool_has_defaults() {
        let rules = rules(TOOL);
        assert_eq!(rules.problem(), None);
        let tool = &rules.tool[0];
        assert_eq!((tool.max_iterations, tool.timeout), (10, Duration::from_secs(300)));
        assert!(tool.tools.permits("anything") && tool.model.is_none());
    }

    #[test]
    fn problems_name_the_tool() {
        for (more, expected) in [
            (TOOL, "has two tools of the same name"),
            ("max_iterations = 0", "\"reviewer\" needs max_iterations"),
            ("timeout = '2h'", "\"reviewer\" needs a timeout"),
            ("model = ' '", "\"reviewer\" has an empty model"),
        ] {
            let problem = rules(&format!("{TOOL}{more}")).problem().unwrap();
            assert!(problem.starts_with(expected), "{problem}");
        }
        let unnamed = rules(&TOOL.replace("'reviewer'", "'re viewer'")).problem().unwrap();
        assert!(unnamed.contains("letters, digits"), "{unnamed}");
        assert!(toml::from_str::<SubagentRules>("[[tool]]\nname = 'x'").is_err());
    }
}
