//! An executor with one tool and the hooks of a configuration.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, InstanceId, SessionId};
use rockbot_hooks::{AuditSection, HookSettings, HooksSection, OperatorHooks};
use rockbot_tools::{
    LayerOptions, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints,
    ToolRegistration, ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};

/// Returns its argument `text`; waits for ever if it is `hang`.
struct Echo(ToolRegistration);

impl Tool for Echo {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let text = arguments["text"].as_str().unwrap_or_default();
            if text == "hang" {
                std::future::pending::<()>().await;
            }
            Ok(ToolResult::text(text))
        })
    }
}

pub(crate) struct Harness {
    pub(crate) hooks: OperatorHooks,
    executor: ToolExecutor,
}

impl Harness {
    pub(crate) fn new(audit: Value, hooks: Value) -> Self {
        let audit: AuditSection = serde_json::from_value(audit).unwrap();
        let sections: HooksSection = serde_json::from_value(hooks).unwrap();
        let settings = HookSettings { audit, hooks: sections };
        let instance = InstanceId::new("instance-1").unwrap();
        let hooks = OperatorHooks::start(&settings, "test", &instance).unwrap();
        let registry = Arc::new(ToolRegistry::new());
        let registration = ToolRegistration {
            name: "echo".to_owned(),
            label: None,
            description: "returns its text".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
            source: ToolSource::Internal,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        let named = ToolRegistration { name: "read_text".to_owned(), ..registration.clone() };
        registry.register(Arc::new(Echo(registration))).unwrap();
        registry.register(Arc::new(Echo(named))).unwrap();
        let layers = LayerOptions { hooks: hooks.hooks(), ..LayerOptions::default() };
        let executor = ToolExecutor::with_layers(registry, layers);
        Self { hooks, executor }
    }

    pub(crate) fn with_hook(hook: &Value) -> Self {
        Self::new(json!({}), json!([hook]))
    }

    pub(crate) fn call(
        &self,
        tool: &str,
        arguments: &str,
    ) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        let session = SessionId::new("session-1").unwrap();
        let context = ToolContext::new(tool, session, AgentName::new("assistant").unwrap());
        self.executor.execute(ToolCall { context, arguments: arguments.into() })
    }

    /// Calls the tool with a context that is cancelled already.
    pub(crate) async fn cancelled_call(&self) -> Result<ToolResult, ToolFailure> {
        let session = SessionId::new("session-1").unwrap();
        let context = ToolContext::new("echo", session, AgentName::new("assistant").unwrap());
        context.cancellation.cancel();
        self.executor.execute(ToolCall { context, arguments: "{}".into() }).await
    }

    /// Calls the tool and returns the text of its result, or of its failure.
    pub(crate) async fn echo(&self, text: &str) -> Result<String, String> {
        let result = self.call("echo", &json!({ "text": text }).to_string()).await;
        result.map(|result| result.to_text().into_owned()).map_err(|failure| failure.model_text())
    }

    pub(crate) async fn close(self) {
        self.hooks.close().await;
    }
}
