//! Trace spans and their propagation in messages.
//!
//! A span of a trace is a `tracing` span with the target [`TARGET`]; the fields `otel.name` and
//! `otel.kind` give its name and kind. The process kit exports these spans through OpenTelemetry, and
//! no others. Spans with other targets are context for log lines.
//!
//! Spans nest as `tracing` spans do: async code attaches one with `.instrument(span)`. A message
//! carries the [`TraceContext`] of its sender, which [`context_of`] and [`current`] read and
//! [`continue_from`] and [`link`] apply. Without an exporter spans are disabled and contexts are empty.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::{
    Context, Value,
    global::get_text_map_propagator,
    propagation::{Extractor, Injector},
    trace::{FutureExt, Status, TraceContextExt},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::envelope::TraceContext;

/// Target of the spans that are exported.
pub const TARGET: &str = "rockbot::trace";

/// Minimum length of a `traceparent` in bytes: that of version 00. The propagator alone would also accept
/// flags of one digit.
const MIN_PARENT_BYTES: usize = 55;
/// Maximum length of an accepted `tracestate` in bytes, the minimum that the specification requires.
const MAX_STATE_BYTES: usize = 512;

static RECORDS_CONTENT: AtomicBool = AtomicBool::new(false);

/// Sets whether spans carry the arguments and results of tools. They do not by default.
pub fn set_records_content(records: bool) {
    RECORDS_CONTENT.store(records, Ordering::Relaxed);
}

/// Returns whether `span` is exported and carries the arguments and results of tools.
#[must_use]
pub fn records_content(span: &Span) -> bool {
    RECORDS_CONTENT.load(Ordering::Relaxed)
        && !span.is_disabled()
        && span.context().span().is_recording()
}

/// Continues the trace of `parent` in `span`, which must not have been entered yet. A context that is
/// empty or malformed changes nothing: the span keeps the current span as its parent.
pub fn continue_from(span: &Span, parent: &TraceContext) {
    if span.is_disabled() {
        return;
    }
    if let Some(context) = extract(parent) {
        // This fails without an exporter and after the span was entered; the span is unchanged then.
        let _ = span.set_parent(context);
    }
}

/// Links `span` to the span of `other`, which is not its parent. A context that is empty or malformed changes
/// nothing.
pub fn link(span: &Span, other: &TraceContext) {
    if span.is_disabled() {
        return;
    }
    if let Some(context) = extract(other) {
        span.add_link(context.span().span_context().clone());
    }
}

/// Returns the context that a message carries, if it is valid.
fn extract(carried: &TraceContext) -> Option<Context> {
    carried.parent.as_ref()?;
    let carrier = Carrier(carried.clone());
    let base = Context::new();
    let context =
        get_text_map_propagator(|propagator| propagator.extract_with_context(&base, &carrier));
    context.span().span_context().is_valid().then_some(context)
}

/// Returns the context for messages sent within `span`; empty without an exporter.
#[must_use]
pub fn context_of(span: &Span) -> TraceContext {
    if span.is_disabled() { TraceContext::default() } else { inject(&span.context()) }
}

/// Returns the context for messages sent within the current span; empty outside of a trace.
#[must_use]
pub fn current() -> TraceContext {
    Context::map_current(inject)
}

fn inject(context: &Context) -> TraceContext {
    if !context.span().span_context().is_valid() {
        return TraceContext::default();
    }
    let mut carrier = Carrier::default();
    get_text_map_propagator(|propagator| propagator.inject_context(context, &mut carrier));
    carrier.0
}

/// Marks `span` as failed, with the kind of failure as `error.type`.
pub fn fail(span: &Span, error_type: impl Into<String>) {
    if !span.is_disabled() {
        span.set_attribute("error.type", Value::from(error_type.into()));
        span.set_status(Status::error(""));
    }
}

/// A place in a trace, to resume later or in another task.
#[derive(Debug, Clone, Default)]
pub struct Scope(Context);

impl Scope {
    /// Captures the current span of the trace.
    #[must_use]
    pub fn current() -> Self {
        Self(Context::current())
    }

    /// Runs `future` with the captured span as the current one.
    pub fn run<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        future.with_context(self.0)
    }
}

/// Returns the trace id in a context, for log lines: 32 hexadecimal digits, or empty.
#[must_use]
pub fn id_of(context: &TraceContext) -> &str {
    let id = context.parent.as_deref().and_then(|parent| parent.get(3..35));
    id.filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())).unwrap_or_default()
}

/// A [`TraceContext`] as the propagator reads and writes it.
#[derive(Default)]
struct Carrier(TraceContext);

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

impl Injector for Carrier {
    fn set(&mut self, key: &str, value: String) {
        match key {
            PARENT => self.0.parent = Some(value.into()),
            STATE if !value.is_empty() => self.0.state = Some(value.into()),
            _ => {}
        }
    }
}

impl Extractor for Carrier {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            PARENT => self.0.parent.as_deref().filter(|parent| parent.len() >= MIN_PARENT_BYTES),
            STATE => self.0.state.as_deref().filter(|state| state.len() <= MAX_STATE_BYTES),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![PARENT, STATE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parent: Option<&str>, id: &str) {
        let context = TraceContext { parent: parent.map(Into::into), state: None };
        assert_eq!(id_of(&context), id, "{parent:?}");
    }

    #[test]
    fn malformed_context_has_no_trace_id() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        check(Some(&format!("00-{id}-00f067aa0ba902b7-01")), id);
        check(None, "");
        check(Some("00-short"), "");
        check(Some(&format!("00-{}\u{1b}[2J", "é".repeat(40))), "");
        check(Some(&format!("00-{}-x", "g".repeat(32))), "");
    }
}
