//! Conversion of listed tools to tool definitions.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::Tool;
use rockbot_contracts::{
    ToolHints,
    mcp::{McpRejectedTool, McpToolDefinition},
    outside_text::is_name,
};
use rockbot_tools::{
    ArgumentSchema,
    names::{DEFAULT_NAME_BYTES, namespaced, with_hash},
    schema,
};
use serde_json::Value;

use crate::{
    config::ServerConfig,
    content::PromptList,
    tool_page::{requires_task, unreadable_reason},
};

/// The maximum number of tools that an MCP server lists.
pub(crate) const MAX_TOOLS: usize = 1000;
/// The limits of an MCP server.
const MCP_LIMITS: ListLimits = ListLimits { tools: MAX_TOOLS, remedy: "toolsAllowed" };
/// The maximum size of all definitions of a server, in bytes of their descriptions and schemas.
const MAX_TOTAL_BYTES: usize = 16 * 1024 * 1024;
/// The longest description of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 16_000;
/// The longest name of a rejected tool, in characters.
const MAX_REJECTED_NAME_CHARS: usize = 80;
/// The largest schema of a tool, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 48 * 1024;
/// The maximum nesting of arrays and objects in a schema. A parser permits 127 levels, and a schema is part of
/// larger messages.
const MAX_SCHEMA_DEPTH: usize = 100;

/// The permitted and usable tools of a server, and its prompts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Definitions {
    /// Definitions by the tools' names on the server.
    pub(crate) tools: BTreeMap<String, McpToolDefinition>,
    /// Rejected tools with the reason.
    pub(crate) rejected: Vec<McpRejectedTool>,
    /// Offers besides tools.
    pub(crate) offers: Offers,
}

/// Offers of a server besides tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Offers {
    pub(crate) has_resources: bool,
    pub(crate) prompts: PromptList,
}

/// The limits of a kind of server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListLimits {
    /// The maximum number of tools.
    pub(crate) tools: usize,
    /// The settings that choose tools.
    pub(crate) remedy: &'static str,
}

impl Definitions {
    /// Converts the listed tools. Schemas of other dialects are rewritten where that has one meaning.
    /// `runs_tasks` is set if calls of the server can run as tasks.
    pub(crate) fn from_listed(config: &ServerConfig, listed: Vec<Tool>, runs_tasks: bool) -> Self {
        let listed = listed.into_iter().map(|tool| (tool.name.clone().into_owned(), tool));
        Self::collect(config, listed, MCP_LIMITS, |tool| definition(config, tool, runs_tasks))
    }

    /// Collects the definitions of the permitted tools, which are listed under their names. `define`
    /// returns the definition of a tool, or the reason why it cannot be offered.
    pub(crate) fn collect<T>(
        config: &ServerConfig,
        listed: impl Iterator<Item = (String, T)>,
        limits: ListLimits,
        define: impl Fn(T) -> Result<McpToolDefinition, String>,
    ) -> Self {
        let ListLimits { tools: max_tools, remedy } = limits;
        let mut definitions = Self::default();
        let mut bytes = 0;
        let mut permitted = listed.filter(|(name, _)| config.permits(name));
        while let Some((name, tool)) = permitted.next() {
            let limit = if definitions.tools.len() >= max_tools {
                Some(format!("the limit is {max_tools} tools"))
            } else if bytes > MAX_TOTAL_BYTES {
                Some(format!("the limit is {MAX_TOTAL_BYTES} bytes of definitions"))
            } else {
                None
            };
            if let Some(limit) = limit {
                let more = permitted.count();
                definitions.reject(
                    &name,
                    format!(
                        "{limit}, and at least {more} more are listed; choose tools with {remedy}"
                    ),
                );
                break;
            }
            match define(tool) {
                Ok(definition) if definitions.tools.contains_key(&definition.name) => {
                    definitions
                        .reject(&name, "it is listed twice; the first one is used".to_owned());
                }
                Ok(definition) => {
                    bytes += definition.description.len() + definition.parameters.to_string().len();
                    let output = definition.output_schema.as_ref();
                    bytes += output.map_or(0, |schema| schema.to_string().len());
                    definitions.tools.insert(definition.name.clone(), definition);
                }
                Err(reason) => definitions.reject(&name, reason),
            }
        }
        definitions.make_names_distinct();
        definitions
    }

    /// Adds a tool that cannot be offered.
    pub(crate) fn reject(&mut self, name: &str, reason: String) {
        let name = name.chars().take(MAX_REJECTED_NAME_CHARS).collect();
        self.rejected.push(McpRejectedTool { name, reason });
    }

    /// Appends a hash of the original name to all names that collide, so that the result does not depend
    /// on their order.
    fn make_names_distinct(&mut self) {
        let (mut seen, mut duplicates) = (BTreeSet::new(), BTreeSet::new());
        for tool in self.tools.values() {
            if !seen.insert(tool.model_name.clone()) {
                duplicates.insert(tool.model_name.clone());
            }
        }
        for tool in self.tools.values_mut().filter(|tool| duplicates.contains(&tool.model_name)) {
            tool.model_name = with_hash(&tool.model_name, &tool.name, DEFAULT_NAME_BYTES);
        }
    }
}

fn definition(
    config: &ServerConfig,
    tool: Tool,
    runs_tasks: bool,
) -> Result<McpToolDefinition, String> {
    if let Some(reason) = unreadable_reason(&tool) {
        return Err(reason.to_owned());
    }
    if !is_name(&tool.name) {
        return Err("its name must have 1 to 128 bytes of printable characters".to_owned());
    }
    if requires_task(&tool) && !runs_tasks {
        let reason = "it can only be called as a task, and the server does not offer the tasks of 2026-07-28";
        return Err(reason.to_owned());
    }
    let mut parameters = Value::Object(tool.input_schema.as_ref().clone());
    schema::repair(&mut parameters);
    let bytes = parameters.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("its schema has {bytes} bytes; the limit is {MAX_SCHEMA_BYTES}"));
    }
    if is_deeper(&parameters, MAX_SCHEMA_DEPTH) {
        return Err(format!("its schema nests deeper than {MAX_SCHEMA_DEPTH} levels of JSON"));
    }
    let description = tool.description.unwrap_or_default();
    let title = tool.title.or_else(|| tool.annotations.as_ref()?.title.clone());
    let hints = match tool.annotations {
        _ if config.is_read_only(&tool.name) => {
            ToolHints { open_world: true, ..ToolHints::READ_ONLY }
        }
        None => ToolHints::default(),
        // Hints of a server never lift a restriction; an operator's settings do.
        Some(annotations) => ToolHints::default().restricted_by(ToolHints {
            read_only: annotations.read_only_hint.unwrap_or(false),
            destructive: annotations.destructive_hint.unwrap_or(true),
            idempotent: annotations.idempotent_hint.unwrap_or(false),
            open_world: annotations.open_world_hint.unwrap_or(true),
        }),
    };
    Ok(McpToolDefinition {
        model_name: namespaced(&config.name, &tool.name, DEFAULT_NAME_BYTES),
        name: tool.name.into_owned(),
        title,
        description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
        parameters,
        output_schema: tool
            .output_schema
            .and_then(|schema| usable_output_schema(Value::Object(schema.as_ref().clone()))),
        hints,
        timeout_ms: config
            .request_timeout
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// Returns a schema that results can be validated against; `None` if it is too large or unusable, which
/// costs only the validation.
fn usable_output_schema(mut output: Value) -> Option<Value> {
    schema::repair(&mut output);
    let is_usable = output.to_string().len() <= MAX_SCHEMA_BYTES
        && !is_deeper(&output, MAX_SCHEMA_DEPTH)
        && ArgumentSchema::compile(&output).is_ok();
    is_usable.then_some(output)
}

/// Returns whether arrays and objects nest deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let inner = levels.checked_sub(1);
    let is_inner_deeper = |value| inner.is_none_or(|levels| is_deeper(value, levels));
    match value {
        Value::Array(values) => inner.is_none() || values.iter().any(is_inner_deeper),
        Value::Object(values) => inner.is_none() || values.values().any(is_inner_deeper),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::config::ServersFile;

    fn config(entry: &Value) -> ServerConfig {
        let text = json!({"mcpServers": {"Git Hub": entry}}).to_string();
        let mut file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
        file.servers.remove("git hub").unwrap()
    }

    #[test]
    fn schema_that_nests_too_deeply_is_rejected() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        for (levels, expected) in [(98, true), (99, true), (100, false), (110, false)] {
            let mut listed = tool("deep");
            // The schema itself is one level.
            Arc::make_mut(&mut listed.input_schema).insert("default".to_owned(), nested(levels));
            let definitions =
                Definitions::from_listed(&config(&json!({"command": "x"})), vec![listed], false);
            assert_eq!(definitions.tools.len() == 1, expected, "{levels}");
            let reason = definitions.rejected.first().map(|tool| tool.reason.as_str());
            assert_eq!(
                reason.is_some_and(|text| text.contains("100 levels")),
                !expected,
                "{levels}"
            );
        }
    }

    fn tool(name: &str) -> Tool {
        serde_json::from_value(json!({
            "name": name,
            "description": "a tool",
            "inputSchema": {"type": "object", "$defs": {"x": {}}, "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "title": "T"},
        }))
        .unwrap()
    }

    #[test]
    fn operator_marks_tools_as_read_only() {
        let config = config(&json!({"command": "x", "toolsReadOnly": ["list"]}));
        let definitions =
            Definitions::from_listed(&config, vec![tool("list"), tool("create")], false);
        assert!(definitions.tools["list"].hints.read_only);
        assert!(!definitions.tools["create"].hints.read_only, "the server's hint is ignored");
    }

    #[test]
    fn definition_gets_model_name_and_keeps_schema() {
        let definitions = Definitions::from_listed(
            &config(&json!({"command": "x"})),
            vec![tool("create.issue")],
            false,
        );
        let tool = &definitions.tools["create.issue"];
        assert_eq!(tool.model_name, "Git_Hub__create_issue");
        assert_eq!(tool.parameters["additionalProperties"], false);
        assert_eq!(tool.hints, ToolHints::default(), "a server cannot lift restrictions");
        assert_eq!(tool.title.as_deref(), Some("T"));
    }

    #[test]
    fn unusable_output_schema_costs_only_the_validation() {
        let server = config(&json!({"command": "x"}));
        let with_output = |name: &str, output: Value| {
            let mut tool = tool(name);
            tool.output_schema = Some(std::sync::Arc::new(output.as_object().unwrap().clone()));
            tool
        };
        let usable = json!({"type": "object", "required": ["n"]});
        let listed = vec![
            with_output("usable", usable.clone()),
            with_output("reference", json!({"type": "object", "$ref": "https://example.com/s"})),
            with_output("large", json!({"type": "object", "title": "x".repeat(60_000)})),
        ];
        let definitions = Definitions::from_listed(&server, listed, false);
        assert_eq!(definitions.tools["usable"].output_schema, Some(usable));
        assert_eq!(definitions.tools["reference"].output_schema, None);
        assert_eq!(definitions.tools["large"].output_schema, None);
        assert!(definitions.rejected.is_empty());
    }

    #[test]
    fn colliding_names_stay_distinct() {
        let server = config(&json!({"command": "x"}));
        let definitions =
            Definitions::from_listed(&server, vec![tool("a.b"), tool("a_b"), tool("c")], false);
        let reordered =
            Definitions::from_listed(&server, vec![tool("a_b"), tool("c"), tool("a.b")], false);
        assert_eq!(definitions, reordered);
        let names: BTreeSet<_> = definitions.tools.values().map(|tool| &tool.model_name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn duplicate_and_excess_tools_are_rejected_by_name() {
        let server = config(&json!({"command": "x"}));
        let mut listed: Vec<_> = (0..MAX_TOOLS).map(|number| tool(&format!("t{number}"))).collect();
        listed.insert(1, tool("t0"));
        listed.extend([tool("excess"), tool("other")]);
        let definitions = Definitions::from_listed(&server, listed, false);
        assert_eq!(definitions.tools.len(), MAX_TOOLS);
        let [twice, excess] = definitions.rejected.as_slice() else {
            panic!("{:?}", definitions.rejected)
        };
        assert!(twice.name == "t0" && twice.reason.contains("twice"), "{twice:?}");
        assert!(excess.name == "excess" && excess.reason.contains("1 more"), "{excess:?}");
    }

    #[test]
    fn schema_of_another_dialect_is_rewritten() {
        let mut old = tool("old");
        let schema = json!({"type": "object", "$schema": "https://example.com/own",
            "properties": {"n": {"minimum": 1, "exclusiveMinimum": true, "required": true}}});
        old.input_schema = std::sync::Arc::new(schema.as_object().unwrap().clone());
        let definitions =
            Definitions::from_listed(&config(&json!({"command": "x"})), vec![old], false);
        assert_eq!(
            definitions.tools["old"].parameters,
            json!({"type": "object", "properties": {"n": {"exclusiveMinimum": 1}},
                "required": ["n"]})
        );
    }

    #[test]
    fn denied_and_unusable_tools_are_not_listed() {
        let server =
            config(&json!({"command": "x", "toolsAllowed": ["a", "b"], "toolsDenied": ["b"]}));
        let definitions =
            Definitions::from_listed(&server, vec![tool("a"), tool("b"), tool("c")], false);
        assert_eq!(definitions.tools.keys().collect::<Vec<_>>(), ["a"]);
        let mut large = tool("large");
        large.input_schema = std::sync::Arc::new(
            json!({"type": "object", "x": "x".repeat(60_000)}).as_object().unwrap().clone(),
        );
        let server = config(&json!({"command": "x"}));
        let definitions =
            Definitions::from_listed(&server, vec![large, tool(""), tool(&"x".repeat(300))], false);
        assert!(definitions.tools.is_empty());
        assert_eq!(definitions.rejected.len(), 3);
    }
}
