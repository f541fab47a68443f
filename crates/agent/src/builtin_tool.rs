//! Tools that the agent itself provides.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The function of a tool. The context names the agent and the conversation.
pub(crate) type ToolFn<S> =
    for<'a> fn(&'a S, Value, &'a ToolContext) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

/// A function over shared state, with its definition.
pub(crate) struct BuiltinTool<S> {
    registration: ToolRegistration,
    state: Arc<S>,
    run: ToolFn<S>,
}

/// The definition of a tool.
pub(crate) struct BuiltinDefinition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// JSON schemas of the arguments.
    pub(crate) arguments: Value,
    pub(crate) required: &'static [&'static str],
    pub(crate) source: ToolSource,
    pub(crate) hints: ToolHints,
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
        let BuiltinDefinition { name, description, arguments, required, source, hints } =
            definition;
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: description.to_owned(),
            tool_description: None,
            parameters: json!({"type": "object", "properties": arguments, "required": required,
                "additionalProperties": false}),
            source,
            hints,
            timeout_ms: None,
        };
        Arc::new(Self { registration, state: state.clone(), run })
    }
}

impl<S: Send + Sync + 'static> Tool for BuiltinTool<S> {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        (self.run)(&self.state, arguments, context)
    }
}

/// Deserializes the arguments of a tool.
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolFailure> {
    serde_json::from_value(arguments).map_err(|error| ToolFailure::invalid(error.to_string()))
}
