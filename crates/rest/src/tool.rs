//! A REST tool.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use rockbot_contracts::trace;
use rockbot_tools::{
    CallPolicy, CallStatus, Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult,
};
use serde_json::Value;
use tracing::{Instrument as _, Span, info_span};

use crate::{
    call::{Execution, RestClient},
    config::CallSettings,
    request::{BuildRequest, InvalidArguments},
    secrets::Secrets,
};

/// A tool whose calls are HTTP requests.
pub(crate) struct RestTool {
    pub(crate) registration: ToolRegistration,
    /// Entry of the configuration that it comes from.
    pub(crate) tool_set: Arc<str>,
    pub(crate) request: Arc<dyn BuildRequest>,
    /// Headers in addition to those of the request.
    pub(crate) headers: HeaderMap,
    pub(crate) settings: CallSettings,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) policy: CallPolicy,
    pub(crate) client: RestClient,
}

impl RestTool {
    async fn run(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Value::Object(arguments) = arguments else {
            return Err(ToolFailure::invalid("the arguments must be an object"));
        };
        let parts = self.request.request(&arguments);
        let mut parts = parts.map_err(|InvalidArguments(message)| ToolFailure::invalid(message))?;
        for (name, value) in &self.headers {
            parts.headers.insert(name.clone(), value.clone());
        }
        let span = self.span(&parts.method, parts.url.host_str().unwrap_or_default());
        let execution = Execution {
            client: &self.client,
            tool_set: &self.tool_set,
            settings: &self.settings,
            secrets: &self.secrets,
            context,
        };
        let outcome = Box::pin(execution.run(&parts)).instrument(span.clone()).await;
        let status = CallStatus::from_outcome(&outcome);
        if !status.is_ok() {
            trace::fail(&span, status.as_str());
        }
        outcome
    }

    /// Returns the span of a call. It has no path and no query, which may hold secrets.
    fn span(&self, method: &http::Method, host: &str) -> Span {
        info_span!(
            target: trace::TARGET,
            "rest call",
            otel.name = format!("{method} {}", self.registration.name),
            otel.kind = "client",
            http.request.method = method.as_str(),
            server.address = host,
        )
    }
}

impl Tool for RestTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.run(arguments, context))
    }

    /// Only the tool knows whether the request was sent.
    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn policy(&self) -> Option<CallPolicy> {
        Some(self.policy.clone())
    }
}
