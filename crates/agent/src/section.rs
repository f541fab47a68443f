//! The configuration sections `[agent]`, `[mcp]` and `[pins]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use rockbot_contracts::period::{Period, duration};
use rockbot_store::{StoreUrl, state_folder};
use rockbot_tools::{
    BudgetLimits, ToolRegistry,
    names::{MAX_NAME_BYTES, sanitize},
};
use secrecy::SecretString;
use serde::Deserialize;

use crate::{definition::AgentDefinition, inbox::Sharing};

/// `[agent]`: the agent of a process and its concurrency.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// Directory of definitions (`*.md`, `*.toml`). Default: only the built-in assistant.
    pub directory: Option<PathBuf>,
    /// File in JSON with agents that are known before they announce themselves: an array of cards. It is read again
    /// every 2 min. Default: none.
    pub well_known_agents: Option<PathBuf>,
    /// Name of the agent. Default `assistant`.
    pub name: String,
    /// Maximum number of messages in progress, including messages that steer a running turn. Default 64, at
    /// least 1.
    pub concurrency: u16,
    /// Send a no-op call to the handlers every 5 s, to detect within 15 s that replies no longer arrive.
    /// Default true.
    pub probe_replies: bool,
    /// Further names of tools, for models that use others than the registered ones: at most 256. A tool with
    /// the name takes precedence.
    pub aliases: BTreeMap<String, String>,
    /// The store of conversations.
    pub conversations: ConversationsSection,
    /// The most that is spent on one message of a user.
    pub budget: BudgetLimits,
}

/// Maximum number of aliases.
const MAX_ALIASES: usize = 256;

impl Default for AgentSection {
    fn default() -> Self {
        Self {
            directory: None,
            well_known_agents: None,
            name: "assistant".to_owned(),
            concurrency: 64,
            probe_replies: true,
            aliases: BTreeMap::new(),
            conversations: ConversationsSection::default(),
            budget: BudgetLimits::default(),
        }
    }
}

const MIN_RETENTION: Duration = Duration::from_secs(3600);
const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(300);

/// `[agent.conversations]`: the store of conversations and their retention.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConversationsSection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `memory:`. Default: a file in the
    /// state directory of the user; without one, the memory of the process. The file is `conversations.db`
    /// for an embedded agent and `conversations-NAMESPACE.db` on a broker.
    pub store: Option<SecretString>,
    /// Time after its last entry until a conversation is deleted, 1 h to 3,650 d. Default 30 d.
    #[serde(deserialize_with = "duration")]
    pub retention: Duration,
    /// Time after which the conversations of an unresponsive process continue in another one, 1 s to
    /// 5 min. Default 2 s.
    #[serde(deserialize_with = "duration")]
    pub lease: Duration,
}

impl Default for ConversationsSection {
    fn default() -> Self {
        let retention = Duration::from_secs(30 * 24 * 3600);
        Self { store: None, retention, lease: Sharing::LEASE }
    }
}

impl ConversationsSection {
    /// Returns the URL of the store. `namespace` is that of the broker; an embedded agent has none. An agent
    /// on a broker continues the open turns in its store with its own tools, so that it must not share
    /// one with other fleets or with embedded agents.
    ///
    /// # Errors
    /// Returns the problem of an invalid URL.
    pub fn url(&self, namespace: Option<&str>) -> Result<StoreUrl, String> {
        match &self.store {
            Some(url) => {
                StoreUrl::parse(url).map_err(|error| format!("agent.conversations.store: {error}"))
            }
            None => Ok(state_folder().map_or(StoreUrl::Memory, |folder| {
                StoreUrl::Sqlite(folder.join(default_file(namespace)))
            })),
        }
    }

    /// Returns all problems of the section.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.url(None).err().into_iter().collect();
        // The parser rejects more than 3650 days.
        if self.retention < MIN_RETENTION {
            let least = Period::from(MIN_RETENTION);
            problems.push(format!("agent.conversations.retention: must be {least} to 3650d"));
        }
        if !(MIN_LEASE..=MAX_LEASE).contains(&self.lease) {
            let (least, most) = (Period::from(MIN_LEASE), Period::from(MAX_LEASE));
            problems.push(format!("agent.conversations.lease: must be {least} to {most}"));
        }
        problems
    }
}

/// Returns the name of the file of an embedded agent's conversations, or of those of a namespace.
fn default_file(namespace: Option<&str>) -> String {
    let Some(namespace) = namespace else { return "conversations.db".to_owned() };
    let mut name = String::from("conversations-");
    for byte in namespace.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(byte));
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name.push_str(".db");
    name
}

impl AgentSection {
    /// Returns the definition of the agent.
    ///
    /// # Errors
    /// Returns the problems of the configuration, one per line.
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
            "agent.name: unknown agent {:?}; known agents: {}",
            self.name,
            names.join(", ")
        ))
    }

    /// Returns all problems of the section.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push("agent.concurrency: must be at least 1".to_owned());
        }
        if self.aliases.len() > MAX_ALIASES {
            problems.push(format!("agent.aliases: more than {MAX_ALIASES} aliases"));
        }
        for (alias, tool) in &self.aliases {
            let is_name = |name: &str| *name == sanitize(name, MAX_NAME_BYTES);
            if !is_name(alias) || !is_name(tool) {
                problems.push(format!(
                    "agent.aliases.{alias}: an alias and its tool must be 1 to {MAX_NAME_BYTES} \
                     letters, digits, `_` or `-`"
                ));
            } else if self.aliases.contains_key(tool) {
                problems.push(format!(
                    "agent.aliases.{alias}: {tool} is an alias as well; name its tool"
                ));
            }
        }
        problems.extend(self.conversations.validate());
        problems.extend(self.budget.validate("agent.budget"));
        problems.extend(self.definition().err());
        problems
    }

    /// Adds the aliases to a registry. Their tools may be registered later.
    pub fn add_aliases(&self, registry: &ToolRegistry) {
        for (alias, tool) in &self.aliases {
            registry.alias(alias, tool);
        }
    }
}

/// `[mcp]`: access to the MCP servers of the bridges on the bus.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    /// Lets models add and remove servers. Default false; the bridge must allow it too.
    pub register: bool,
    /// Store of the trusted tool definitions: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`,
    /// or `memory:`. Without it, a server may change its tool definitions at any time.
    pub pins: Option<SecretString>,
}

impl McpSection {
    /// Returns the URL of the pins store, if one is configured.
    ///
    /// # Errors
    /// Returns the problem of an invalid URL.
    pub fn pins_url(&self) -> Result<Option<StoreUrl>, String> {
        let url = self.pins.as_ref().map(StoreUrl::parse).transpose();
        url.map_err(|error| format!("mcp.pins: {error}"))
    }
}

/// `[pins]`: the store of trusted tool definitions, of handlers and of MCP servers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PinsSection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `memory:`. A tool whose definition
    /// changed is neither offered nor called until an operator approves it. Default: none.
    pub store: Option<SecretString>,
}

impl PinsSection {
    /// Returns the URL of the store, if one is configured.
    ///
    /// # Errors
    /// Returns the problem of an invalid URL.
    pub fn url(&self) -> Result<Option<StoreUrl>, String> {
        let url = self.store.as_ref().map(StoreUrl::parse).transpose();
        url.map_err(|error| format!("pins.store: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_and_embedded_agents_have_files_of_their_own() {
        assert_eq!(default_file(None), "conversations.db");
        assert_eq!(default_file(Some("rockbot")), "conversations-rockbot.db");
        assert_eq!(default_file(Some("../a b")), "conversations-..%2Fa%20b.db");
    }

    #[test]
    fn lifetimes_of_conversations_are_bounded() {
        let section = |text: &str| toml::from_str::<ConversationsSection>(text).unwrap();
        assert!(section("").validate().is_empty());
        for text in ["retention = \"59m\"", "lease = \"999ms\"", "lease = \"301s\""] {
            assert_eq!(section(text).validate().len(), 1, "{text}");
        }
    }
}
