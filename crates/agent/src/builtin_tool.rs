//! Tools that the agent itself provides.

use std::sync::Arc;

use futures_util::future::BoxFuture;
pub(crate) use rockbot_tools::parse_arguments;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde_json::{Value, json};

/// The future of a tool call.
pub(crate) type ToolFuture<'a> = BoxFuture<'a, Result<ToolResult, ToolFailure>>;

/// The function of a tool. The context contains the agent and the conversation.
pub(crate) type ToolFn<S> = for<'a> fn(&'a S, Value, &'a ToolContext) -> ToolFuture<'a>;

/// A tool that runs a function on shared state.
pub(crate) struct BuiltinTool<S> {
    registration: ToolRegistration,
    state: Arc<S>,
    run: ToolFn<S>,
}

/// The definition of a tool.
pub(crate) struct BuiltinDefinition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// JSON schemas of the arguments, by name.
    pub(crate) arguments: Value,
    pub(crate) required: &'static [&'static str],
    pub(crate) source: ToolSource,
    pub(crate) hints: ToolHints,
}

impl BuiltinDefinition {
    /// Returns the registration of the tool.
    pub(crate) fn registration(self) -> ToolRegistration {
        let Self { name, description, arguments, required, source, hints } = self;
        ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: description.to_owned(),
            tool_description: None,
            parameters: json!({"type": "object", "properties": arguments, "required": required,
                "additionalProperties": false}),
            source,
            hints,
            timeout_ms: None,
        }
    }
}

/// Hints of a tool that changes its own state without destroying anything.
pub(crate) const NON_DESTRUCTIVE: ToolHints =
    ToolHints { read_only: false, destructive: false, idempotent: true, open_world: false };

/// Hints of a tool that deletes from its own state.
pub(crate) const DESTRUCTIVE: ToolHints = ToolHints { destructive: true, ..NON_DESTRUCTIVE };

impl<S: Send + Sync + 'static> BuiltinTool<S> {
    /// Creates the tool from its definition and the function that runs it.
    pub(crate) fn create(
        state: &Arc<S>,
        definition: BuiltinDefinition,
        run: ToolFn<S>,
    ) -> Arc<dyn Tool> {
        Arc::new(Self { registration: definition.registration(), state: state.clone(), run })
    }
}

impl<S: Send + Sync + 'static> Tool for BuiltinTool<S> {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> ToolFuture<'a> {
        (self.run)(&self.state, arguments, context)
    }
}

/// Accepts any call. The turn that made it then carries out its effect.
pub(crate) fn accept<'a, S>(_: &'a S, _: Value, _: &'a ToolContext) -> ToolFuture<'a> {
    Box::pin(std::future::ready(Ok(ToolResult::text("accepted"))))
}
