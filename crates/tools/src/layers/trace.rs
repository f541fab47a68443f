//! Trace spans of calls.

use std::borrow::Cow;

use rockbot_contracts::trace;
use tracing::{Instrument, Span, field::Empty, info_span};

use super::{Call, CallService, RawArguments};
use crate::{failure::ToolFailure, result::ToolResult, status::CallStatus};

/// Maximum size of arguments and of a result in a span, in bytes.
const MAX_CONTENT_BYTES: usize = 4096;

/// Runs each call in a span `execute_tool {tool}` with the attributes of OpenTelemetry's semantic
/// conventions for GenAI. Arguments and results are included only if the process records content.
#[derive(Debug, Clone)]
pub struct Traced<S>(S);

impl<S> Traced<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Traced<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let span = info_span!(
            target: trace::TARGET,
            "execute_tool",
            otel.name = format!("execute_tool {}", call.name()),
            otel.kind = "internal",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = call.name(),
            gen_ai.tool.type = "function",
            gen_ai.tool.call.id = call.context.tool_call_id.as_str(),
            gen_ai.tool.call.arguments = Empty,
            gen_ai.tool.call.result = Empty,
        );
        let records_content = trace::records_content(&span);
        if records_content {
            let arguments = match &call.arguments {
                RawArguments::Text(text) => Cow::Borrowed(&**text),
                RawArguments::Valid(value) => Cow::Owned(value.to_string()),
            };
            span.record("gen_ai.tool.call.arguments", truncated(&arguments));
        }
        let outcome = self.0.call(call).instrument(span.clone()).await;
        record_outcome(&span, &outcome, records_content);
        outcome
    }
}

fn record_outcome(span: &Span, outcome: &Result<ToolResult, ToolFailure>, records_content: bool) {
    let status = CallStatus::from_outcome(outcome);
    if !status.is_ok() {
        trace::fail(span, status.as_str());
    }
    if records_content {
        let result = match outcome {
            Ok(result) => result.to_text(),
            Err(failure) => failure.model_text().into(),
        };
        span.record("gen_ai.tool.call.result", truncated(&result));
    }
}

fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_CONTENT_BYTES)]
}
