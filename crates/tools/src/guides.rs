//! Guides on families of tools, which a model reads when it needs them.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use serde_json::{Value, json};

use crate::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};

/// A guide on a family of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guide {
    /// Name that a model requests it by.
    pub name: &'static str,
    /// Subject, on one line.
    pub summary: &'static str,
    /// Text in Markdown, less than 120 lines.
    pub markdown: &'static str,
}

/// Guide on the file and shell tools of a handler. It lives here and not beside its tools because
/// agents show it, and agents know handlers only over the bus.
pub const FILES: Guide = Guide {
    name: "files-and-shell",
    summary: "Reading, searching and changing files, and running commands",
    markdown: include_str!("../guides/files-and-shell.md"),
};

/// Guide on searching and reading the web. It lives here for the same reason as [`FILES`].
pub const WEB: Guide = Guide {
    name: "web",
    summary: "Searching the web, and reading pages and long documents",
    markdown: include_str!("../guides/web.md"),
};

/// Guide on tools for REST APIs, from configuration and from OpenAPI documents. It lives here for the same
/// reason as [`FILES`].
pub const REST: Guide = Guide {
    name: "rest",
    summary: "Calling REST APIs: arguments, results, pages, and what to do after a failure",
    markdown: include_str!("../guides/rest.md"),
};

/// Line limit of a guide; a guide must stay below it.
pub const MAX_GUIDE_LINES: usize = 120;

impl Guide {
    /// Returns the defects of the guide: excessive length, and names of tools and arguments that do not
    /// exist. A name is text in backticks with an underscore that otherwise consists of letters, digits
    /// and hyphens.
    #[must_use]
    pub fn validate<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolRegistration>,
    ) -> Vec<String> {
        let mut known = BTreeSet::new();
        for tool in tools {
            known.insert(tool.name.clone());
            let arguments = tool.parameters["properties"].as_object().into_iter().flatten();
            known.extend(arguments.map(|(name, _)| name.clone()));
        }
        let lines = self.markdown.lines().count();
        let long = (lines >= MAX_GUIDE_LINES)
            .then(|| format!("{} has {lines} lines; use less than {MAX_GUIDE_LINES}", self.name));
        let in_code = self.markdown.split('`').skip(1).step_by(2);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_name = |text: &&str| text.contains('_') && text.chars().all(is_part);
        let unknown = in_code.filter(is_name).filter(|name| !known.contains(*name));
        let unknown = unknown.map(|name| format!("{} mentions unknown name {name}", self.name));
        long.into_iter().chain(unknown).collect()
    }
}

/// Creates `list_tool_guides` and `get_tool_guide` for these guides. Empty without guides.
#[must_use]
pub fn guide_tools(guides: &[Guide]) -> Vec<Arc<dyn Tool>> {
    if guides.is_empty() {
        return Vec::new();
    }
    let mut guides = guides.to_vec();
    guides.sort_by_key(|guide| guide.name);
    let guides: Arc<[Guide]> = guides.into();
    let list = registration(
        "list_tool_guides",
        "List the guides on how to use families of tools, with what each is about.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    );
    let names: Vec<_> = guides.iter().map(|guide| guide.name).collect();
    let get = registration(
        "get_tool_guide",
        "Read a guide on how to use a family of tools, before the first use.",
        json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": names}},
            "required": ["name"],
            "additionalProperties": false,
        }),
    );
    vec![
        Arc::new(GuideTool { registration: list, guides: guides.clone() }),
        Arc::new(GuideTool { registration: get, guides }),
    ]
}

struct GuideTool {
    registration: ToolRegistration,
    guides: Arc<[Guide]>,
}

impl Tool for GuideTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let read = match arguments["name"].as_str() {
            None => Ok(self.list()),
            Some(name) => self.read(name),
        };
        Box::pin(std::future::ready(read))
    }
}

impl GuideTool {
    fn list(&self) -> ToolResult {
        let lines: Vec<_> = self
            .guides
            .iter()
            .map(|guide| format!("- {}: {}", guide.name, guide.summary))
            .collect();
        ToolResult::text(lines.join("\n"))
    }

    fn read(&self, name: &str) -> Result<ToolResult, ToolFailure> {
        let found = self.guides.iter().find(|guide| guide.name == name);
        let guide = found.ok_or_else(|| {
            let names: Vec<_> = self.guides.iter().map(|guide| guide.name).collect();
            ToolFailure::invalid(format!("unknown guide; use one of: {}", names.join(", ")))
        })?;
        Ok(ToolResult::text(guide.markdown))
    }
}

fn registration(name: &str, description: &str, parameters: Value) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: description.to_owned(),
        tool_description: None,
        parameters,
        source: ToolSource::Internal,
        hints: ToolHints {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
        timeout_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{executor::ToolExecutor, layers::ToolCall, registry::ToolRegistry};
    use rockbot_contracts::{AgentName, SessionId};

    const GUIDES: [Guide; 2] = [
        Guide { name: "b", summary: "about b", markdown: "# B" },
        Guide { name: "a", summary: "about a", markdown: "# A" },
    ];

    async fn call(tool: &str, arguments: Value) -> Result<String, ToolFailure> {
        let registry = Arc::new(ToolRegistry::new());
        for tool in guide_tools(&GUIDES) {
            registry.register(tool).unwrap();
        }
        let agent = AgentName::new("assistant").unwrap();
        let context = ToolContext::new(tool, SessionId::generate(), agent);
        let call = ToolCall { context, arguments: arguments.to_string().into() };
        ToolExecutor::new(registry).execute(call).await.map(|result| result.to_text().into_owned())
    }

    #[test]
    fn long_guides_and_unknown_names_are_reported() {
        let tools = [registration("save_it", "", json!({"properties": {"the_key": {}}}))];
        let markdown = "`save_it` with `the_key`, and `save_it(key)`, `plain`, `a_b c`";
        let guide = Guide { name: "a", summary: "", markdown };
        assert_eq!(guide.validate(&tools), [""; 0]);
        let long = "`lose_it`\n".repeat(120);
        let guide = Guide { markdown: Box::leak(long.into_boxed_str()), ..guide };
        assert_eq!(guide.validate(&tools).len(), 121);
    }

    #[test]
    fn rest_guide_names_only_what_every_such_tool_has() {
        let any = registration("rest__", "", json!({"properties": {}}));
        assert_eq!(REST.validate(&[any]), [""; 0]);
    }

    #[tokio::test]
    async fn guides_are_listed_and_returned() {
        let listed = call("list_tool_guides", json!({})).await.unwrap();
        assert_eq!(listed, "- a: about a\n- b: about b");
        assert_eq!(call("get_tool_guide", json!({"name": "b"})).await.unwrap(), "# B");
        assert!(call("get_tool_guide", json!({"name": "c"})).await.is_err());
        assert!(guide_tools(&[]).is_empty());
    }
}
