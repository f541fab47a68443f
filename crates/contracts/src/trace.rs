//! Traces that go on in other processes: the context of a span travels with the messages that are
//! sent within it, as W3C Trace Context says.
//!
//! The house knows spans (`tracing`) and messages, and nothing of what records traces. A process that
//! records them says so once, with [`install`]; until then every function here costs a load and does
//! nothing.

use std::sync::OnceLock;

use tracing::Span;

use crate::envelope::TraceContext;

/// What records traces, as far as messages have to do with it.
pub trait Propagator: Send + Sync {
    /// The context that goes with a message that is sent within `span`; empty when it is not
    /// recorded.
    fn context_of(&self, span: &Span) -> TraceContext;

    /// Makes `span`, which nobody has entered yet, go on with the trace of `parent`. What can't be
    /// read is no parent.
    fn follow(&self, span: &Span, parent: &TraceContext);

    /// Whether arguments and results go into traces too.
    fn records_content(&self) -> bool;
}

static PROPAGATOR: OnceLock<Box<dyn Propagator>> = OnceLock::new();

/// From now on traces are recorded with `propagator`. Later calls in the same process change
/// nothing, and return false.
pub fn install(propagator: impl Propagator + 'static) -> bool {
    PROPAGATOR.set(Box::new(propagator)).is_ok()
}

/// The context that goes with a message that is sent now.
#[must_use]
pub fn current() -> TraceContext {
    PROPAGATOR.get().map(|one| one.context_of(&Span::current())).unwrap_or_default()
}

/// The context that goes with a message whose sending is `span`; [`current`] when nobody records that.
#[must_use]
pub fn within(span: &Span) -> TraceContext {
    match PROPAGATOR.get() {
        Some(propagator) if !span.is_disabled() => propagator.context_of(span),
        _ => current(),
    }
}

/// Makes `span`, which nobody has entered yet, go on with the trace of `parent`.
pub fn follow(span: &Span, parent: &TraceContext) {
    if let (Some(propagator), Some(_)) = (PROPAGATOR.get(), &parent.parent) {
        propagator.follow(span, parent);
    }
}

/// Whether arguments and results are to be recorded.
#[must_use]
pub fn records_content() -> bool {
    PROPAGATOR.get().is_some_and(|one| one.records_content())
}

/// The trace's id in a context, for log lines: 32 hexadecimal digits, or empty.
#[must_use]
pub fn id_of(context: &TraceContext) -> &str {
    let id = context.parent.as_deref().and_then(|parent| parent.get(3..35));
    id.filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())).unwrap_or_default()
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
    fn only_an_id_of_a_trace_is_told() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        check(Some(&format!("00-{id}-00f067aa0ba902b7-01")), id);
        check(None, "");
        check(Some("00-short"), "");
        check(Some(&format!("00-{}\u{1b}[2J", "é".repeat(40))), "");
        check(Some(&format!("00-{}-x", "g".repeat(32))), "");
    }
}
