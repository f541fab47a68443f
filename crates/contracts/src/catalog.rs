//! Who runs which tool: announced by handlers, discovered by agents.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{ids::InstanceId, message::Message, tool::null_is_default, topology::stable_hash};

/// What an agent needs to know to offer a tool to its model and to call it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRegistration {
    /// Unique in a registry.
    pub name: String,
    /// For people; the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// For the model.
    pub description: String,
    /// Said to the model in place of the description, when configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_description: Option<String>,
    /// JSON Schema of the arguments: an object schema.
    pub parameters: Value,
    /// Which family it belongs to.
    pub source: ToolSource,
    /// What calling it may do.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hints: ToolHints,
    /// Its own time-out in milliseconds, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ToolRegistration {
    /// What the model is told: the override where there is one.
    #[must_use]
    pub fn model_description(&self) -> &str {
        self.tool_description.as_deref().unwrap_or(&self.description)
    }

    /// What people are shown.
    #[must_use]
    pub fn display_label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }

    /// Changes when anything that a model or a caller relies on changes: name, description,
    /// schema, hints.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let definition = (&self.name, self.model_description(), &self.parameters, &self.hints);
        let bytes = serde_json::to_vec(&definition).unwrap_or_default();
        format!("{:016x}", stable_hash(&bytes))
    }
}

/// What calling a tool may do. The defaults are MCP's, which assume the worst; a statement from
/// outside may add a restriction and never lift one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolHints {
    /// It changes nothing. Default false.
    pub read_only: bool,
    /// It may destroy. Default true; meaningless for a read-only tool.
    pub destructive: bool,
    /// Doing it twice is doing it once. Default false.
    pub idempotent: bool,
    /// It reaches the world outside. Default true.
    pub open_world: bool,
}

impl Default for ToolHints {
    fn default() -> Self {
        Self { read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}

impl ToolHints {
    /// For a tool that only looks, at what it owns.
    pub const READ_ONLY: Self =
        Self { read_only: true, destructive: false, idempotent: true, open_world: false };

    /// Whether a call whose outcome is lost may be run again without being asked.
    #[must_use]
    pub const fn may_run_again(self) -> bool {
        self.read_only || self.idempotent
    }

    /// These hints with those of an outsider: each restriction of either side holds.
    #[must_use]
    pub const fn restricted_by(self, outside: Self) -> Self {
        Self {
            read_only: self.read_only && outside.read_only,
            destructive: self.destructive || outside.destructive,
            idempotent: self.idempotent && outside.idempotent,
            open_world: self.open_world || outside.open_world,
        }
    }
}

/// The family a tool belongs to: what profiles allow and deny.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolSource {
    /// Search and browse.
    Web,
    /// Configured REST calls.
    Rest,
    /// Files and shell.
    Files,
    /// Python scripts.
    Script,
    /// Scheduled tasks.
    Scheduling,
    /// Working and long-term memory.
    Memory,
    /// Saved skills.
    Skills,
    /// Sub-agents.
    Subagent,
    /// Pipelines of small steps.
    Wisp,
    /// Other agents over the bus.
    A2a,
    /// Search over known services.
    ServiceSearch,
    /// The five tools that manage MCP servers.
    McpManagement,
    /// A tool of the named MCP server.
    Mcp(String),
    /// The named agent as a tool.
    Agent(String),
    /// The agent's own workings.
    Internal,
    /// A family this build does not know.
    Other(String),
}

impl ToolSource {
    const PLAIN: [(&'static str, Self); 13] = [
        ("web", Self::Web),
        ("rest", Self::Rest),
        ("files", Self::Files),
        ("script", Self::Script),
        ("scheduling", Self::Scheduling),
        ("memory", Self::Memory),
        ("skills", Self::Skills),
        ("subagent", Self::Subagent),
        ("wisp", Self::Wisp),
        ("a2a", Self::A2a),
        ("service-search", Self::ServiceSearch),
        ("mcp:management", Self::McpManagement),
        ("internal", Self::Internal),
    ];

    /// The families that are one source each.
    pub fn plain() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().map(|(_, source)| source)
    }

    /// Its name, as patterns of sources have it: `files`, `mcp:github`.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Mcp(server) => format!("mcp:{server}").into(),
            Self::Agent(agent) => format!("agent:{agent}").into(),
            Self::Other(source) => source.into(),
            plain => {
                let name = Self::PLAIN.iter().find(|(_, source)| source == plain);
                name.map(|(name, _)| *name).unwrap_or_default().into()
            }
        }
    }

    fn parse(text: &str) -> Self {
        if let Some((_, source)) = Self::PLAIN.into_iter().find(|(name, _)| *name == text) {
            return source;
        }
        match text.split_once(':') {
            Some(("mcp", server)) => Self::Mcp(server.to_owned()),
            Some(("agent", agent)) => Self::Agent(agent.to_owned()),
            _ => Self::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for ToolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Serialize for ToolSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

/// What one handler process runs, said on start, on a change, when asked, and as a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCatalog {
    /// Name of the handler service.
    pub handler: String,
    /// The process.
    pub instance: InstanceId,
    /// Everything it runs.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools: Vec<ToolRegistration>,
    /// Names it ran before and no longer runs; all of them when it stops.
    #[serde(default, deserialize_with = "null_is_default")]
    pub removed: Vec<String>,
    /// Changes when `tools` changes, so that a heartbeat costs its reader one comparison.
    pub fingerprint: String,
    /// Version of the handler; older ones do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How busy it was when it said this; older ones do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<HandlerLoad>,
}

/// How busy a handler is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerLoad {
    /// Calls that began and have not ended.
    #[serde(default, deserialize_with = "null_is_default")]
    pub running: u64,
    /// Calls in hand that wait for room to run in.
    #[serde(default, deserialize_with = "null_is_default")]
    pub waiting: u64,
    /// For how long the oldest call in hand has been there, in milliseconds; none without a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
}

impl ToolCatalog {
    /// The fingerprint of a list of tools.
    #[must_use]
    pub fn fingerprint_of(tools: &[ToolRegistration]) -> String {
        let all: String = tools.iter().map(ToolRegistration::fingerprint).collect();
        format!("{:016x}", stable_hash(all.as_bytes()))
    }
}

impl Message for ToolCatalog {
    const TYPE: &'static str = "ToolCatalog";
}

/// Asks every handler to announce itself now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCatalogRefresh {}

impl Message for ToolCatalogRefresh {
    const TYPE: &'static str = "ToolCatalogRefresh";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_keep_their_names() {
        for name in ["web", "mcp:management", "mcp:GitHub", "agent:writer", "from-the-future"] {
            assert_eq!(ToolSource::parse(name).to_string(), name);
        }
        for (name, source) in ToolSource::PLAIN {
            assert_eq!(ToolSource::parse(name), source);
        }
    }

    #[test]
    fn hints_from_outside_only_restrict() {
        let careless =
            ToolHints { read_only: true, destructive: false, idempotent: true, open_world: false };
        assert_eq!(ToolHints::default().restricted_by(careless), ToolHints::default());
        assert_eq!(careless.restricted_by(ToolHints::default()), ToolHints::default());
    }
}
