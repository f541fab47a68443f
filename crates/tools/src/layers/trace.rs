//! Each call is a span of its trace.

use rockbot_contracts::trace;
use tower_layer::Layer;
use tracing::{Instrument, Span, debug_span, field::Empty};

use super::{Call, CallService, RawArguments};
use crate::{failure::ToolFailure, result::ToolResult, status::CallStatus};

/// The most of a call's arguments and result that goes into its span, in bytes.
const MOST_CONTENT: usize = 4096;

/// Puts [`Traced`] around a service.
#[derive(Debug, Clone, Copy)]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced(inner)
    }
}

/// Has a call run within a span `execute_tool {tool}`, with the attributes of OpenTelemetry's
/// conventions for GenAI. Arguments and result are among them only where the process records
/// content. Without anybody who records spans it costs a comparison.
#[derive(Debug, Clone)]
pub struct Traced<S>(S);

impl<S: CallService<Call>> CallService<Call> for Traced<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let span = debug_span!(
            "execute_tool",
            otel.name = format_args!("execute_tool {}", call.name()),
            otel.kind = "internal",
            otel.status_code = Empty,
            error.type = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = call.name(),
            gen_ai.tool.type = "function",
            gen_ai.tool.call.id = call.context.tool_call_id.as_str(),
            gen_ai.tool.call.arguments = Empty,
            gen_ai.tool.call.result = Empty,
        );
        if span.is_disabled() {
            return self.0.call(call).await;
        }
        if trace::records_content() {
            let arguments = match &call.arguments {
                RawArguments::Text(text) => text.to_string(),
                RawArguments::Valid(value) => value.to_string(),
            };
            span.record("gen_ai.tool.call.arguments", beginning(&arguments));
        }
        let ended = self.0.call(call).instrument(span.clone()).await;
        tell(&span, &ended);
        ended
    }
}

fn tell(span: &Span, ended: &Result<ToolResult, ToolFailure>) {
    let status = CallStatus::of(ended);
    if !status.is_ok() {
        span.record("error.type", status.as_str());
        span.record("otel.status_code", "ERROR");
    }
    if trace::records_content() {
        let result = match ended {
            Ok(result) => result.to_text(),
            Err(failure) => failure.model_text().into(),
        };
        span.record("gen_ai.tool.call.result", beginning(&result));
    }
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_CONTENT)]
}
