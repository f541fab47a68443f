//! Tool catalogs: announced by handlers, discovered by agents.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    ids::InstanceId,
    message::Message,
    pool::HandlerPool,
    tool::null_is_default,
    topology::{RoutingKey, stable_hash},
};

/// Definition of a tool: everything that an agent needs to offer it to its model and to call it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRegistration {
    /// Name, unique in a registry.
    pub name: String,
    /// Display name; the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Description for the model.
    pub description: String,
    /// Configured description that replaces `description` for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_description: Option<String>,
    /// JSON Schema of the arguments: an object schema.
    pub parameters: Value,
    /// Origin of the tool.
    pub source: ToolSource,
    /// Possible effects of a call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hints: ToolHints,
    /// Timeout of this tool in milliseconds, if it has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ToolRegistration {
    /// Returns the description for the model.
    #[must_use]
    pub fn model_description(&self) -> &str {
        self.tool_description.as_deref().unwrap_or(&self.description)
    }

    /// Returns the display name.
    #[must_use]
    pub fn display_label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }

    /// Returns a hash of all that a model or a caller relies on: name, description, schema and hints.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let definition = (&self.name, self.model_description(), &self.parameters, &self.hints);
        let bytes = serde_json::to_vec(&definition).unwrap_or_default();
        format!("{:016x}", stable_hash(&bytes))
    }
}

/// Possible effects of a tool. The defaults are those of MCP, which assume the worst. Hints from
/// untrusted sources may add restrictions but never remove one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolHints {
    /// The tool changes nothing. Default false.
    pub read_only: bool,
    /// The tool may delete or overwrite data. Default true; meaningless for a read-only tool.
    pub destructive: bool,
    /// Repeating a call has no further effect. Default false.
    pub idempotent: bool,
    /// The tool accesses external systems. Default true.
    pub open_world: bool,
}

impl Default for ToolHints {
    fn default() -> Self {
        Self { read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}

impl ToolHints {
    /// Hints of a tool that only reads, and accesses no external system.
    pub const READ_ONLY: Self =
        Self { read_only: true, destructive: false, idempotent: true, open_world: false };

    /// Returns whether a call with an unknown outcome may be retried automatically.
    #[must_use]
    pub const fn may_retry(self) -> bool {
        self.read_only || self.idempotent
    }

    /// Returns hints with the restrictions of both sides, so that untrusted hints can't remove one.
    #[must_use]
    pub const fn restricted_by(self, untrusted: Self) -> Self {
        Self {
            read_only: self.read_only && untrusted.read_only,
            destructive: self.destructive || untrusted.destructive,
            idempotent: self.idempotent && untrusted.idempotent,
            open_world: self.open_world || untrusted.open_world,
        }
    }
}

/// Origin of a tool. Profiles allow and deny tools by source.
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
    /// Search across known services.
    ServiceSearch,
    /// The five tools that manage MCP servers.
    McpManagement,
    /// A tool of the named MCP server.
    Mcp(String),
    /// The named agent as a tool.
    Agent(String),
    /// Internals of the agent.
    Internal,
    /// A source that this build does not know.
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

    /// Returns the sources without a name part.
    pub fn plain() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().map(|(_, source)| source)
    }

    /// Returns the text form, as used in patterns of sources: `files`, `mcp:github`.
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

/// Tools of one handler process: announced on start, on changes, on request, and as a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCatalog {
    /// Name of the handler service.
    pub handler: String,
    /// Instance id of the process.
    pub instance: InstanceId,
    /// All tools that it runs.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools: Vec<ToolRegistration>,
    /// Names of tools that it no longer runs; all of its tools when it stops.
    #[serde(default, deserialize_with = "null_is_default")]
    pub removed: Vec<String>,
    /// Hash of `tools`, so that the receiver of a heartbeat detects changes with one comparison.
    pub fingerprint: String,
    /// Version of the handler; absent from older handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Current load; absent from older handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<HandlerLoad>,
    /// Key of the requests that run its tools; absent for `tool.invoke`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoke_key: Option<RoutingKey>,
    /// Instructions on its tools, for models.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<ProviderInstructions>,
    /// Guides on its tools, which a model reads when it needs them.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub guides: Vec<ToolGuide>,
    /// Isolation of the scripts that it runs; absent from handlers without scripts, and from older ones. An invalid
    /// value is ignored.
    #[serde(
        default,
        deserialize_with = "invalid_is_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub script_isolation: Option<ScriptIsolation>,
}

/// Isolation of the scripts of a handler, as it determined it at its start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptIsolation {
    /// The mechanism and the resources that it does not limit, human-readable, such as `bubblewrap`; at most
    /// [`MAX_MECHANISM`](Self::MAX_MECHANISM) characters are read.
    #[serde(default, deserialize_with = "null_is_default")]
    pub mechanism: String,
    /// Resources that a script can still reach, human-readable; absent without any. At most
    /// [`MAX_GAPS`](Self::MAX_GAPS) of [`MAX_GAP`](Self::MAX_GAP) characters are read.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

impl ScriptIsolation {
    /// Maximum length of a mechanism in characters.
    pub const MAX_MECHANISM: usize = 200;

    /// Maximum number of gaps.
    pub const MAX_GAPS: usize = 32;

    /// Maximum length of a gap in characters.
    pub const MAX_GAP: usize = 200;
}

/// Reads a value for information only: `None` if it is invalid, so that the rest of the message is read.
fn invalid_is_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// Guide on tools of one source: longer than instructions, and read on request only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolGuide {
    /// Source of the tools.
    pub source: ToolSource,
    /// Name that a model requests it by; see [`is_valid_name`](Self::is_valid_name).
    pub name: String,
    /// Subject, on one line; at most [`MAX_SUMMARY`](Self::MAX_SUMMARY) characters are read.
    #[serde(default, deserialize_with = "null_is_default")]
    pub summary: String,
    /// Text in Markdown; at most [`MAX_MARKDOWN`](Self::MAX_MARKDOWN) characters are read.
    pub markdown: String,
}

impl ToolGuide {
    /// Maximum number of guides in a catalog.
    pub const MAX_ENTRIES: usize = 8;

    /// Maximum length of a summary in characters.
    pub const MAX_SUMMARY: usize = 200;

    /// Maximum length of a text in characters.
    pub const MAX_MARKDOWN: usize = 16_000;

    /// Returns whether the name is valid: 1 to 64 ASCII letters, digits, hyphens and underscores.
    #[must_use]
    pub fn is_valid_name(&self) -> bool {
        let is_allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        (1..=64).contains(&self.name.len()) && self.name.bytes().all(is_allowed)
    }
}

/// Instructions of a provider of tools: what a model should know before it uses any of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderInstructions {
    /// Source of the tools.
    pub source: ToolSource,
    /// Text for the model; at most [`MAX_TEXT`](Self::MAX_TEXT) characters are read.
    pub text: String,
}

impl ProviderInstructions {
    /// Maximum number of instructions in a catalog.
    pub const MAX_ENTRIES: usize = 8;

    /// Maximum length of a text in characters.
    pub const MAX_TEXT: usize = 2_000;
}

/// Load of a handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerLoad {
    /// Running calls.
    #[serde(default, deserialize_with = "null_is_default")]
    pub running: u64,
    /// Received calls that wait for a permit to run.
    #[serde(default, deserialize_with = "null_is_default")]
    pub waiting: u64,
    /// Age of the oldest received call in milliseconds; `None` without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Maximum number of calls that run at once; absent from older handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
}

impl ToolCatalog {
    /// Returns the fingerprint of a list of tools.
    #[must_use]
    pub fn fingerprint_of(tools: &[ToolRegistration]) -> String {
        let all: String = tools.iter().map(ToolRegistration::fingerprint).collect();
        format!("{:016x}", stable_hash(all.as_bytes()))
    }

    /// Returns the pool of the handler; `None` when its key is not that of a pool.
    #[must_use]
    pub fn pool(&self) -> Option<HandlerPool> {
        match &self.invoke_key {
            Some(key) => HandlerPool::from_invoke_key(key),
            None => Some(HandlerPool::Unnamed),
        }
    }
}

impl Message for ToolCatalog {
    const TYPE: &'static str = "ToolCatalog";
}

/// Request to every handler to announce its tools now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCatalogRefresh {}

impl Message for ToolCatalogRefresh {
    const TYPE: &'static str = "ToolCatalogRefresh";
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_script_isolation_leaves_the_catalog_readable() {
        let isolation = |mechanism: &str, gaps: &[&str]| ScriptIsolation {
            mechanism: mechanism.to_owned(),
            gaps: gaps.iter().map(|gap| (*gap).to_owned()).collect(),
        };
        for (value, expected) in [
            (json!({"mechanism": "a", "gaps": ["b"]}), Some(isolation("a", &["b"]))),
            (json!({"mechanism": null, "gaps": null}), Some(isolation("", &[]))),
            (json!({"gaps": ["b"]}), Some(isolation("", &["b"]))),
            (json!({"mechanism": 1}), None),
            (json!({"mechanism": "a", "gaps": "b"}), None),
            (json!("a"), None),
            (json!(null), None),
        ] {
            let catalog = json!({"handler": "h", "instance": "h-1", "fingerprint": "f", "scriptIsolation": value});
            let catalog: ToolCatalog = serde_json::from_value(catalog).unwrap();
            assert_eq!(catalog.script_isolation, expected, "{value}");
        }
    }

    #[test]
    fn source_text_round_trips() {
        for name in ["web", "mcp:management", "mcp:GitHub", "agent:writer", "from-the-future"] {
            assert_eq!(ToolSource::parse(name).to_string(), name);
        }
        for (name, source) in ToolSource::PLAIN {
            assert_eq!(ToolSource::parse(name), source);
        }
    }

    #[test]
    fn untrusted_hints_only_restrict() {
        let permissive =
            ToolHints { read_only: true, destructive: false, idempotent: true, open_world: false };
        assert_eq!(ToolHints::default().restricted_by(permissive), ToolHints::default());
        assert_eq!(permissive.restricted_by(ToolHints::default()), ToolHints::default());
    }
}
