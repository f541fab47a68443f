//! `[agent]`: which agent a process runs or talks to; `[mcp]`: how it uses MCP servers.

use std::path::PathBuf;

use rockbot_store::StoreUrl;
use secrecy::SecretString;
use serde::Deserialize;

use crate::definition::AgentDefinition;

/// Which agent a process runs or talks to, and how many messages it takes at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// Folder of definitions (`*.md`, `*.toml`); only the built-in assistant when absent.
    pub directory: Option<PathBuf>,
    /// Which of them. Default `assistant`.
    pub name: String,
    /// Messages in hand at once, those that steer a running turn included. Default 64, at least 1.
    pub concurrency: u16,
    /// Ask the handlers every 5 s for a sign of life, to learn within 15 s when answers to calls do
    /// not arrive any more. Default true.
    pub probe_replies: bool,
}

impl Default for AgentSection {
    fn default() -> Self {
        Self { directory: None, name: "assistant".to_owned(), concurrency: 64, probe_replies: true }
    }
}

impl AgentSection {
    /// The definition that the section names.
    ///
    /// # Errors
    /// What an operator must change, one problem a line.
    pub fn definition(&self) -> Result<AgentDefinition, String> {
        let mut known = match &self.directory {
            Some(folder) => {
                AgentDefinition::load_dir(folder).map_err(|problems| problems.to_string())?
            }
            None => Vec::new(),
        };
        if known.iter().all(|agent| agent.name.as_str() != "assistant") {
            known.push(AgentDefinition::assistant());
        }
        if let Some(at) = known.iter().position(|agent| agent.name.as_str() == self.name) {
            return Ok(known.swap_remove(at));
        }
        let names: Vec<_> = known.iter().map(|agent| agent.name.as_str()).collect();
        Err(format!(
            "agent.name: there is no agent {:?}; there are: {}",
            self.name,
            names.join(", ")
        ))
    }

    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push("agent.concurrency: must be at least 1".to_owned());
        }
        problems.extend(self.definition().err());
        problems
    }
}

/// How a process uses the MCP servers of the bridges on its bus.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    /// Whether models are offered to add and remove servers. Default false; the bridge must allow
    /// it too.
    pub register: bool,
    /// Where the definitions of tools that are trusted are kept: `sqlite:PATH`,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `memory:`. Without it, a server may change
    /// the definition of a tool at any time.
    pub pins: Option<SecretString>,
}

impl McpSection {
    /// Which store keeps the pins, if one does.
    ///
    /// # Errors
    /// What is wrong with it, in words for an operator.
    pub fn store(&self) -> Result<Option<StoreUrl>, String> {
        let url = self.pins.as_ref().map(StoreUrl::parse).transpose();
        url.map_err(|error| format!("mcp.pins: {error}"))
    }
}

/// `[pins]`: where an agent keeps the definitions of tools that it trusts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PinsSection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `memory:`. With it, a tool
    /// whose definition changes, of a handler or of an MCP server, is neither offered nor called
    /// until an operator approves it. Default: none.
    pub store: Option<SecretString>,
}

impl PinsSection {
    /// Which store keeps the pins, if one does.
    ///
    /// # Errors
    /// What is wrong with it, in words for an operator.
    pub fn url(&self) -> Result<Option<StoreUrl>, String> {
        let url = self.store.as_ref().map(StoreUrl::parse).transpose();
        url.map_err(|error| format!("pins.store: {error}"))
    }
}
