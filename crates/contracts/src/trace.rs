//! Traces: what is done, as spans that go on in other processes.
//!
//! The house makes spans and sends messages, and knows nothing of what records traces. A process that
//! records them says so once, with [`install`]; until then a span costs a load and is nothing.
//!
//! A span is current for what is done [within](Span::within) it. Spans that [begin](Span::begin)
//! there are its children, and messages that are sent there take its context along, as W3C Trace
//! Context says.

mod span;

use std::sync::{Arc, OnceLock};

pub use self::span::{Span, Within};
use crate::envelope::TraceContext;

/// What a span is to the others of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is done in this process.
    Internal,
    /// Another process is asked, and its answer waited for.
    Client,
    /// It answers a [`Client`](Self::Client).
    Server,
    /// A message is sent.
    Producer,
    /// A message is worked on.
    Consumer,
}

/// What is told of a span under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text that the program knows.
    Known(&'static str),
    /// Text.
    Text(String),
    /// Text that others hold too.
    Shared(Arc<str>),
    /// A number.
    Number(u64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Known(text)
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// What records traces.
pub trait Recorder: Send + Sync {
    /// Begins a trace.
    fn begin(&self, kind: Kind) -> Arc<dyn Recorded>;

    /// Goes on with the trace of `parent`; `None` when that is none, or can't be read.
    fn follow(&self, kind: Kind, parent: &TraceContext) -> Option<Arc<dyn Recorded>>;

    /// Whether arguments and results go into traces too.
    fn records_content(&self) -> bool;
}

/// A span as it is recorded. It ends when it is dropped.
pub trait Recorded: Send + Sync {
    /// Begins a span within this one.
    fn child(&self, kind: Kind) -> Arc<dyn Recorded>;

    /// The context that goes with messages that are sent within it.
    fn context(&self) -> TraceContext;

    /// Whether anybody is told of it. Traces are recorded in part, and the context of the others
    /// travels all the same.
    fn is_told(&self) -> bool;

    /// Gives it a name.
    fn name(&self, name: String);

    /// Says something of it.
    fn set(&self, key: &'static str, value: Value);

    /// It did not succeed.
    fn failed(&self);

    /// Something happened within it.
    fn happened(&self, what: String, attributes: Vec<(&'static str, Value)>);
}

static RECORDER: OnceLock<Box<dyn Recorder>> = OnceLock::new();

/// From now on traces are recorded with `recorder`. Later calls in the same process change nothing,
/// and return false.
pub fn install(recorder: impl Recorder + 'static) -> bool {
    RECORDER.set(Box::new(recorder)).is_ok()
}

fn recorder() -> Option<&'static dyn Recorder> {
    RECORDER.get().map(|one| &**one)
}

/// Whether arguments and results are to be recorded.
#[must_use]
pub fn records_content() -> bool {
    recorder().is_some_and(Recorder::records_content)
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
