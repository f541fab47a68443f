//! A tool over something that the agent keeps.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What a tool does with its arguments, for the agent and conversation of the call.
pub(crate) type Act<S> =
    for<'a> fn(&'a S, Value, &'a ToolContext) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

/// A function over a subject, with its definition.
pub(crate) struct OwnTool<S> {
    registration: ToolRegistration,
    subject: Arc<S>,
    act: Act<S>,
}

/// What a model is told of a tool.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The schema of each argument.
    pub(crate) arguments: Value,
    pub(crate) required: &'static [&'static str],
    pub(crate) source: ToolSource,
    pub(crate) hints: ToolHints,
}

/// For a tool that changes what it owns and destroys nothing.
pub(crate) const KEEPS: ToolHints =
    ToolHints { read_only: false, destructive: false, idempotent: true, open_world: false };

/// For a tool that takes something away that it owns.
pub(crate) const REMOVES: ToolHints = ToolHints { destructive: true, ..KEEPS };

impl<S: Send + Sync + 'static> OwnTool<S> {
    pub(crate) fn over(subject: &Arc<S>, definition: Definition, act: Act<S>) -> Arc<dyn Tool> {
        let Definition { name, description, arguments, required, source, hints } = definition;
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
        Arc::new(Self { registration, subject: subject.clone(), act })
    }
}

impl<S: Send + Sync + 'static> Tool for OwnTool<S> {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        (self.act)(&self.subject, arguments, context)
    }
}

/// The arguments as the tool reads them.
pub(crate) fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolFailure> {
    serde_json::from_value(arguments).map_err(|error| ToolFailure::invalid(error.to_string()))
}
