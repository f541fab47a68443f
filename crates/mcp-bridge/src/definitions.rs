//! A server's tools, as the rest of the house defines tools.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::Tool;
use rockbot_contracts::{ToolHints, mcp::McpToolDefinition};
use rockbot_tool_rpc::mcp::untrusted_text::is_name;
use rockbot_tools::names::{DEFAULT_NAME_BYTES, namespaced, with_hash};
use serde_json::Value;

use crate::config::ServerConfig;

/// The most tools of one server.
pub(crate) const MOST_TOOLS: usize = 1000;
/// The longest description of one tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 16_000;
/// The largest schema of one tool, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 48 * 1024;

/// What may be listed and called of a server's tools, and why the others may not.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Definitions {
    /// By their names on the server.
    pub(crate) tools: BTreeMap<String, McpToolDefinition>,
    /// For the log: which are left out, and why.
    pub(crate) left_out: Vec<String>,
}

impl Definitions {
    /// Takes over what the server lists. Schemas are passed on as they are.
    pub(crate) fn of(config: &ServerConfig, listed: Vec<Tool>) -> Self {
        let mut definitions = Self::default();
        for tool in listed {
            let name = tool.name.clone();
            if !config.permits(&name) {
                continue;
            }
            match definition(config, tool) {
                Ok(_) if definitions.tools.len() >= MOST_TOOLS => {
                    definitions.left_out.push(format!("{name:?}: at most {MOST_TOOLS} tools"));
                    break;
                }
                Ok(definition) => {
                    definitions.tools.insert(definition.name.clone(), definition);
                }
                Err(why) => {
                    let name: String = name.chars().take(80).collect();
                    definitions.left_out.push(format!("{name:?}: {why}"));
                }
            }
        }
        definitions.make_names_distinct();
        definitions
    }

    /// Names that became the same end in a hash of what they were; which one comes first must not
    /// matter, so each of them does.
    fn make_names_distinct(&mut self) {
        let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
        for tool in self.tools.values() {
            if !seen.insert(tool.model_name.clone()) {
                twice.insert(tool.model_name.clone());
            }
        }
        for tool in self.tools.values_mut().filter(|tool| twice.contains(&tool.model_name)) {
            tool.model_name = with_hash(&tool.model_name, &tool.name, DEFAULT_NAME_BYTES);
        }
    }
}

fn definition(config: &ServerConfig, tool: Tool) -> Result<McpToolDefinition, String> {
    if !is_name(&tool.name) {
        return Err("its name must have 1 to 128 bytes, all of which can be seen".to_owned());
    }
    let parameters = Value::Object(tool.input_schema.as_ref().clone());
    let bytes = parameters.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("its schema has {bytes} bytes, at most {MAX_SCHEMA_BYTES}"));
    }
    let description = tool.description.unwrap_or_default();
    let title = tool.title.or_else(|| tool.annotations.as_ref()?.title.clone());
    let hints = match tool.annotations {
        _ if config.only_reads(&tool.name) => {
            ToolHints { open_world: true, ..ToolHints::READ_ONLY }
        }
        None => ToolHints::default(),
        // A server's word never lifts a restriction; an operator's does.
        Some(said) => ToolHints::default().restricted_by(ToolHints {
            read_only: said.read_only_hint.unwrap_or(false),
            destructive: said.destructive_hint.unwrap_or(true),
            idempotent: said.idempotent_hint.unwrap_or(false),
            open_world: said.open_world_hint.unwrap_or(true),
        }),
    };
    Ok(McpToolDefinition {
        model_name: namespaced(&config.name, &tool.name, DEFAULT_NAME_BYTES),
        name: tool.name.into_owned(),
        title,
        description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
        parameters,
        hints,
        timeout_ms: config
            .request_timeout
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::ServersFile;

    fn config(entry: &Value) -> ServerConfig {
        let text = json!({"mcpServers": {"Git Hub": entry}}).to_string();
        let mut file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
        file.servers.remove("git hub").unwrap()
    }

    fn tool(name: &str) -> Tool {
        serde_json::from_value(json!({
            "name": name,
            "description": "does it",
            "inputSchema": {"type": "object", "$defs": {"x": {}}, "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "title": "T"},
        }))
        .unwrap()
    }

    #[test]
    fn an_operator_says_which_tools_only_read() {
        let config = config(&json!({"command": "x", "toolsReadOnly": ["look"]}));
        let made = Definitions::of(&config, vec![tool("look"), tool("create")]);
        assert!(made.tools["look"].hints.read_only);
        assert!(!made.tools["create"].hints.read_only, "the server's word does not count");
    }

    #[test]
    fn a_definition_is_passed_on_with_a_name_for_models() {
        let made = Definitions::of(&config(&json!({"command": "x"})), vec![tool("create.issue")]);
        let tool = &made.tools["create.issue"];
        assert_eq!(tool.model_name, "Git_Hub__create_issue");
        assert_eq!(tool.parameters["additionalProperties"], false);
        assert_eq!(tool.hints, ToolHints::default(), "a server does not lift restrictions");
        assert_eq!(tool.title.as_deref(), Some("T"));
    }

    #[test]
    fn names_that_become_one_stay_two() {
        let server = config(&json!({"command": "x"}));
        let made = Definitions::of(&server, vec![tool("a.b"), tool("a_b"), tool("c")]);
        let again = Definitions::of(&server, vec![tool("a_b"), tool("c"), tool("a.b")]);
        assert_eq!(made, again);
        let names: BTreeSet<_> = made.tools.values().map(|tool| &tool.model_name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn what_is_denied_or_unusable_is_not_listed() {
        let server =
            config(&json!({"command": "x", "toolsAllowed": ["a", "b"], "toolsDenied": ["b"]}));
        let made = Definitions::of(&server, vec![tool("a"), tool("b"), tool("c")]);
        assert_eq!(made.tools.keys().collect::<Vec<_>>(), ["a"]);
        let mut large = tool("large");
        large.input_schema = std::sync::Arc::new(
            json!({"type": "object", "x": "x".repeat(60_000)}).as_object().unwrap().clone(),
        );
        let server = config(&json!({"command": "x"}));
        let made = Definitions::of(&server, vec![large, tool(""), tool(&"x".repeat(300))]);
        assert!(made.tools.is_empty());
        assert_eq!(made.left_out.len(), 3);
    }
}
