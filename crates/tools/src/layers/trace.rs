//! Each call is a span of its trace.

use rockbot_contracts::trace::{self, Kind, Span};
use tower_layer::Layer;

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
        let span = Span::begin(Kind::Internal, |span| {
            span.name(format!("execute_tool {}", call.name()));
            span.set("gen_ai.operation.name", "execute_tool".into());
            span.set("gen_ai.tool.name", call.name().to_owned().into());
            span.set("gen_ai.tool.type", "function".into());
            span.set("gen_ai.tool.call.id", (&call.context.tool_call_id).into());
            if trace::records_content() {
                let arguments = match &call.arguments {
                    RawArguments::Text(text) => beginning(text).to_owned(),
                    RawArguments::Valid(value) => beginning(&value.to_string()).to_owned(),
                };
                span.set("gen_ai.tool.call.arguments", arguments.into());
            }
        });
        let ended = span.clone().within(self.0.call(call)).await;
        tell(&span, &ended);
        ended
    }
}

fn tell(span: &Span, ended: &Result<ToolResult, ToolFailure>) {
    let status = CallStatus::of(ended);
    if !status.is_ok() {
        span.fail(status.as_str());
    }
    if span.told().is_some() && trace::records_content() {
        let result = match ended {
            Ok(result) => result.to_text(),
            Err(failure) => failure.model_text().into(),
        };
        span.set("gen_ai.tool.call.result", beginning(&result).to_owned());
    }
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_CONTENT)]
}
