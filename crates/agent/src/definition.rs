//! Agent definitions.

mod load;
mod mcp_rules;
mod parse;
mod subagents;

use std::{fmt, path::PathBuf, time::Duration};

use rockbot_contracts::AgentName;
use rockbot_llm::ModelTier;
pub use rockbot_tools::ToolFilter;

pub use self::mcp_rules::McpRules;
pub(crate) use self::mcp_rules::offers_found;
pub use self::subagents::{SubagentRules, SubagentTool};
use crate::{
    discovery::A2aRules, handoff::RouterRules, internal_tools::InternalTools,
    strategy::ExecutionStrategy,
};
pub use rockbot_contracts::mcp::McpExposure;

/// Name, prompt and permissions of an agent.
///
/// A Markdown file has a TOML head between lines of `+++`, followed by the system prompt. A TOML file has
/// the prompt under `system_prompt`.
///
/// ```markdown
/// +++
/// name = "librarian"
/// description = "Finds things in files."
/// strategy = { batched = 4 }
/// [tools]
/// allow = ["read_*", "search"]
/// +++
/// You find things in files, and say where you found them.
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// Name of the agent and of its queue. Default: the file name without extension.
    pub name: AgentName,
    /// Description for users, and for models if the agent is a tool. Default: empty.
    pub description: String,
    /// Replaces the description for models if the agent is a tool. Default: none.
    pub tool_description: Option<String>,
    /// JSON Schema of an object: the arguments of the agent as a tool, which the agent receives as JSON.
    /// Default: one string, the message.
    pub parameters: Option<serde_json::Value>,
    /// Makes the agent a tool of other agents. Default true.
    pub enabled: bool,
    /// Restricts the agent to users: it is never a tool. Default false. The agent that a process runs is
    /// never a tool of that process.
    pub primary: bool,
    /// Model of the agent, at the server of its tier. Default: that of the tier.
    pub model: Option<String>,
    /// Tier of the model. Default balanced: the model of the process.
    pub tier: ModelTier,
    /// The system prompt. When loaded from a file, it includes the documents.
    pub system_prompt: String,
    /// Files appended to the prompt, such as a style guide; relative to the directory of the definition, at
    /// most 16. Default: none.
    pub documents: Vec<PathBuf>,
    /// Tools that the agent may use. Default: all.
    pub tools: ToolFilter,
    /// MCP servers that the agent may use, and how their tools are offered. Default: all, pinned.
    pub mcp: McpRules,
    /// Tools that steer the agent's own turns. Default: none.
    pub internal: InternalTools,
    /// The agents that messages of users may be handed off to. Default: none.
    pub router: RouterRules,
    /// Sub-agents that are tools of the agent. Default: none.
    pub subagents: SubagentRules,
    /// Tasks of other agents of the bus. Default: none are accepted.
    pub a2a: A2aRules,
    /// Execution of the calls of one answer: `parallel` (default), `sequential` or `{ batched = N }`.
    pub strategy: ExecutionStrategy,
    /// Maximum number of model requests with tools in one turn, 1 to 100. Default 12. Then the model must
    /// answer.
    pub max_iterations: u32,
    /// Timeout of a call, 1 s to 1 h. Default 60 s. A longer timeout of the
    /// tool takes precedence.
    pub tool_timeout: Duration,
    /// Number of consecutive tool timeouts that ends a turn, 1 to 20. Default 2.
    pub max_tool_timeouts: u32,
    /// Sampling temperature, 0 to 2. Default: that of the model.
    pub temperature: Option<f64>,
    /// Longest answer of the model, in tokens, at least 1. Default: that of the model.
    pub max_tokens: Option<u32>,
}

/// A problem of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionProblem {
    /// The file, or the directory if it cannot be read.
    pub file: PathBuf,
    /// The affected key, if any.
    pub key: Option<String>,
    /// The problem and its remedy.
    pub problem: String,
}

impl fmt::Display for DefinitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// All problems of the definitions that were read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct DefinitionErrors(
    /// At least one.
    pub Vec<DefinitionProblem>,
);

impl AgentDefinition {
    /// Creates a definition with this name and prompt, and with defaults otherwise.
    #[must_use]
    pub fn new(name: AgentName, system_prompt: impl Into<String>) -> Self {
        Self {
            name,
            description: String::new(),
            tool_description: None,
            parameters: None,
            enabled: true,
            primary: false,
            model: None,
            tier: ModelTier::Balanced,
            system_prompt: system_prompt.into(),
            documents: Vec::new(),
            tools: ToolFilter::default(),
            mcp: McpRules::default(),
            internal: InternalTools::default(),
            router: RouterRules::default(),
            subagents: SubagentRules::default(),
            a2a: A2aRules::default(),
            strategy: ExecutionStrategy::default(),
            max_iterations: 12,
            tool_timeout: Duration::from_secs(60),
            max_tool_timeouts: 2,
            temperature: None,
            max_tokens: None,
        }
    }

    /// Returns the built-in agent `assistant`.
    ///
    /// # Panics
    /// Never: the definition is compiled in, and a test parses it.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the text is compiled in, and a test parses it")]
    pub fn assistant() -> Self {
        let text = include_str!("../../../agents/assistant.md");
        Self::parse("assistant.md".as_ref(), text).expect("the built-in definition is valid")
    }
}
