//! Who an agent is and what it may do.

mod load;
mod read;

use std::{fmt, path::PathBuf, time::Duration};

use crate::strategy::ExecutionStrategy;
use rockbot_contracts::AgentName;
pub use rockbot_tools::ToolFilter;

use crate::mcp::McpRules;

/// Who an agent is and what it may do.
///
/// In a file it is Markdown with a head of TOML between lines of `+++`; what follows is the system
/// prompt. A plain TOML file has the prompt under `system_prompt`.
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
    /// Names the agent and its queue. Default: the file's name without its ending.
    pub name: AgentName,
    /// For people, and for models where the agent is a tool. Default: empty.
    pub description: String,
    /// Said to models in place of the description, where the agent is a tool. Default: none.
    pub tool_description: Option<String>,
    /// JSON Schema of an object: the arguments of the agent as a tool, which it is told as JSON.
    /// Default: one text, the message.
    pub parameters: Option<serde_json::Value>,
    /// Whether it is a tool of the other agents. Default true.
    pub enabled: bool,
    /// Whether it talks to people only and is never a tool. Default false; the agent that a process
    /// runs is no tool of that process anyway.
    pub primary: bool,
    /// Another model than the process's own.
    pub model: Option<String>,
    /// What the model is told before anything else. From a file it ends with the documents.
    pub system_prompt: String,
    /// Files whose text is told after the prompt, such as a style guide: relative to the folder of
    /// the definition, at most 16. Default: none.
    pub documents: Vec<PathBuf>,
    /// Which tools it may use. Default: all.
    pub tools: ToolFilter,
    /// Which MCP servers it may use, and how it is offered their tools. Default: all, pinned.
    pub mcp: McpRules,
    /// How the calls of one answer are run. Default: `parallel`; else `sequential` or
    /// `{ batched = N }`.
    pub strategy: ExecutionStrategy,
    /// Model calls with tools in one turn, from 1 to 100. Default 12. Then the model must answer.
    pub max_iterations: u32,
    /// Time-out of a call, from 1 s to 1 h. Default 60 s. A tool with
    /// a longer time-out of its own keeps it.
    pub tool_timeout: Duration,
    /// So many time-outs of tools in a row end a turn, from 1 to 20. Default 2.
    pub max_tool_timeouts: u32,
    /// From 0 to 2. Default: the model's.
    pub temperature: Option<f64>,
    /// Longest answer of the model, in tokens, at least 1. Default: the model's.
    pub max_tokens: Option<u32>,
}

/// One thing that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionProblem {
    /// The file, or the folder when it can't be read.
    pub file: PathBuf,
    /// The key, where the problem is with one.
    pub key: Option<String>,
    /// What is wrong and what to change.
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

/// Everything that is wrong with the definitions that were read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct DefinitionErrors(
    /// At least one.
    pub Vec<DefinitionProblem>,
);

impl AgentDefinition {
    /// An agent with this name and prompt, and defaults for everything else.
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
            system_prompt: system_prompt.into(),
            documents: Vec::new(),
            tools: ToolFilter::default(),
            mcp: McpRules::default(),
            strategy: ExecutionStrategy::default(),
            max_iterations: 12,
            tool_timeout: Duration::from_secs(60),
            max_tool_timeouts: 2,
            temperature: None,
            max_tokens: None,
        }
    }

    /// The agent that comes with RockBot, named `assistant`.
    ///
    /// # Panics
    /// Never: the definition is compiled in, and a test reads it.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the text is compiled in, and a test reads it")]
    pub fn assistant() -> Self {
        let text = include_str!("../../../agents/assistant.md");
        Self::parse("assistant.md".as_ref(), text)
            .expect("the definition that comes along is valid")
    }
}
