//! Test helpers of this crate.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, SessionId, ToolHints, ToolRegistration, ToolSource};
use serde_json::{Value, json};

use crate::{
    context::ToolContext,
    failure::ToolFailure,
    layers::{Call, CallService, RawArguments, ResolvedCall},
    limits::CallPolicy,
    registry::ToolRegistry,
    result::ToolResult,
    tool::Tool,
};

/// Creates the context of a new call of `tool`.
pub(crate) fn context(tool: &str) -> ToolContext {
    let session = SessionId::new("session").expect("an id");
    ToolContext::new(tool, session, AgentName::new("agent").expect("a name"))
}

/// Creates a call of a read-only tool that has passed name resolution.
pub(crate) fn call(tool: &str, arguments: &str) -> Call {
    call_of(ToolRegistration { hints: ToolHints::READ_ONLY, ..registration(tool) }, arguments)
}

/// Creates a call of a tool with the schema `parameters`.
pub(crate) fn call_with_schema(parameters: Value, arguments: &str) -> Call {
    call_of(ToolRegistration { parameters, ..registration("tool") }, arguments)
}

fn call_of(registration: ToolRegistration, arguments: &str) -> Call {
    let registry = ToolRegistry::new();
    let tool = &registration.name.clone();
    registry.register(Arc::new(Echo(registration))).expect("registered");
    Box::new(ResolvedCall {
        context: context(tool),
        arguments: RawArguments::Text(arguments.into()),
        tool: registry.get(tool).expect("registered"),
        policy: CallPolicy::default(),
    })
}

/// Creates an innermost service from a closure.
pub(crate) fn service<F>(run: impl Fn(Call) -> F + Send + Sync) -> impl CallService<Call>
where
    F: Future<Output = Result<ToolResult, ToolFailure>> + Send,
{
    Service(run)
}

struct Service<R>(R);

impl<R, F> CallService<Call> for Service<R>
where
    R: Fn(Call) -> F + Send + Sync,
    F: Future<Output = Result<ToolResult, ToolFailure>> + Send,
{
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        (self.0)(call).await
    }
}

/// Creates a definition without parameters.
pub(crate) fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: "a tool of a test".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

/// Returns its arguments as text.
pub(crate) struct Echo(pub(crate) ToolRegistration);

impl Tool for Echo {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { Ok(ToolResult::text(arguments.to_string())) })
    }
}
