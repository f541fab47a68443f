//! The tools that list and return guides.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use serde_json::{Value, json};

use super::{GuideEntry, Guides};
use crate::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};

/// Longest name of a guide in an argument, in characters.
const MAX_NAME: usize = 200;

/// Creates `list_tool_guides` and `get_tool_guide` for these guides.
#[must_use]
pub fn guide_tools(guides: &Arc<Guides>) -> [Arc<dyn Tool>; 2] {
    let list = registration(
        "list_tool_guides",
        "List the guides on how to use families of tools, with what each is about.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    );
    let get = registration(
        "get_tool_guide",
        "Read a guide on how to use a family of tools, before the first use. list_tool_guides lists the names.",
        json!({
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME,
                "description": "Name of the guide."}},
            "required": ["name"],
            "additionalProperties": false,
        }),
    );
    [
        Arc::new(ListGuides { registration: list, guides: guides.clone() }),
        Arc::new(GetGuide { registration: get, guides: guides.clone() }),
    ]
}

struct ListGuides {
    registration: ToolRegistration,
    guides: Arc<Guides>,
}

impl Tool for ListGuides {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        _arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let line = |GuideEntry { name, summary }| format!("- {name}: {summary}");
        let lines: Vec<_> = self.guides.list(context).into_iter().map(line).collect();
        let text =
            if lines.is_empty() { "There are no guides.".to_owned() } else { lines.join("\n") };
        Box::pin(std::future::ready(Ok(ToolResult::text(text))))
    }
}

struct GetGuide {
    registration: ToolRegistration,
    guides: Arc<Guides>,
}

impl Tool for GetGuide {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let name = arguments["name"].as_str().unwrap_or_default();
            self.guides.read(name, context).await.map(ToolResult::text)
        })
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
        hints: ToolHints::READ_ONLY,
        timeout_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId};

    use super::*;
    use crate::{
        executor::ToolExecutor,
        guides::{Guide, GuideSource},
        layers::ToolCall,
        registry::ToolRegistry,
    };

    const GUIDES: [Guide; 2] = [
        Guide { name: "b", summary: "about b", markdown: "# B" },
        Guide { name: "a", summary: "about a", markdown: "# A" },
    ];

    /// A source of guides with these names, whose texts are the names in upper case.
    struct Named(&'static [&'static str]);

    impl GuideSource for Named {
        fn list(&self, _: &ToolContext) -> Vec<GuideEntry> {
            let entry =
                |name: &&str| GuideEntry { name: (*name).to_owned(), summary: "more".to_owned() };
            self.0.iter().map(entry).collect()
        }

        fn read<'a>(
            &'a self,
            name: &'a str,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<Option<String>, ToolFailure>> {
            let found = self.0.contains(&name).then(|| name.to_uppercase());
            Box::pin(std::future::ready(Ok(found)))
        }
    }

    async fn call(
        guides: &Arc<Guides>,
        tool: &str,
        arguments: Value,
    ) -> Result<String, ToolFailure> {
        let registry = Arc::new(ToolRegistry::new());
        for tool in guide_tools(guides) {
            registry.register(tool).unwrap();
        }
        let agent = AgentName::new("assistant").unwrap();
        let context = ToolContext::new(tool, SessionId::generate(), agent);
        let call = ToolCall { context, arguments: arguments.to_string().into() };
        ToolExecutor::new(registry).execute(call).await.map(|result| result.to_text().into_owned())
    }

    #[tokio::test]
    async fn guides_are_listed_and_returned() {
        let guides = Guides::new(GUIDES);
        let listed = call(&guides, "list_tool_guides", json!({})).await.unwrap();
        assert_eq!(listed, "- a: about a\n- b: about b");
        assert_eq!(call(&guides, "get_tool_guide", json!({"name": "b"})).await.unwrap(), "# B");
        assert!(call(&guides, "get_tool_guide", json!({"name": "c"})).await.is_err());
        let listed = call(&Guides::new([]), "list_tool_guides", json!({})).await.unwrap();
        assert_eq!(listed, "There are no guides.");
    }

    #[tokio::test]
    async fn later_sources_do_not_replace_guides() {
        let guides = Guides::new(GUIDES);
        guides.add(Arc::new(Named(&["b", "c"])));
        let listed = call(&guides, "list_tool_guides", json!({})).await.unwrap();
        assert_eq!(listed, "- a: about a\n- b: about b\n- c: more");
        for (name, text) in [("b", "# B"), ("c", "C")] {
            assert_eq!(call(&guides, "get_tool_guide", json!({"name": name})).await.unwrap(), text);
        }
        let unknown = call(&guides, "get_tool_guide", json!({"name": "d"})).await.unwrap_err();
        assert!(unknown.to_string().contains("use one of: a, b, c"), "{unknown}");
    }
}
