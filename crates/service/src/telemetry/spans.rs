//! The house's spans as OpenTelemetry has them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::{
    Context, KeyValue, StringValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{Span as _, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, Tracer as _},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{SdkTracer, Span},
};
use rockbot_contracts::{
    TraceContext,
    trace::{Kind, Recorded, Recorder, Value},
};

/// The longest `tracestate` that is taken over; the specification asks for as much at least.
const MOST_STATE: usize = 512;

/// Makes spans, and samples them.
pub(super) struct Spans {
    pub(super) tracer: SdkTracer,
    pub(super) content: bool,
}

impl Recorder for Spans {
    fn begin(&self, kind: Kind) -> Arc<dyn Recorded> {
        Made::within(&self.tracer, &Context::new(), kind)
    }

    fn follow(&self, kind: Kind, parent: &TraceContext) -> Option<Arc<dyn Recorded>> {
        parent.parent.as_ref()?;
        let parent = read(parent);
        parent.has_active_span().then(|| Made::within(&self.tracer, &parent, kind) as _)
    }

    fn records_content(&self) -> bool {
        self.content
    }
}

/// A span, which is sent when it is dropped.
struct Made {
    tracer: SdkTracer,
    context: SpanContext,
    is_told: bool,
    span: Mutex<Span>,
}

impl Made {
    fn within(tracer: &SdkTracer, parent: &Context, kind: Kind) -> Arc<Self> {
        let kind = match kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Client => SpanKind::Client,
            Kind::Server => SpanKind::Server,
            Kind::Producer => SpanKind::Producer,
            Kind::Consumer => SpanKind::Consumer,
        };
        let builder = tracer.span_builder("").with_kind(kind);
        let span = tracer.build_with_context(builder, parent);
        let (context, is_told) = (span.span_context().clone(), span.is_recording());
        Arc::new(Self { tracer: tracer.clone(), context, is_told, span: Mutex::new(span) })
    }

    fn span(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded for Made {
    fn child(&self, kind: Kind) -> Arc<dyn Recorded> {
        let parent = Context::new().with_remote_span_context(self.context.clone());
        Self::within(&self.tracer, &parent, kind)
    }

    fn context(&self) -> TraceContext {
        let state = self.context.trace_state().header();
        TraceContext {
            parent: self.context.is_valid().then(|| parent_of(&self.context)),
            state: (!state.is_empty()).then(|| state.into()),
        }
    }

    fn is_told(&self) -> bool {
        self.is_told
    }

    fn name(&self, name: String) {
        self.span().update_name(name);
    }

    fn set(&self, key: &'static str, value: Value) {
        self.span().set_attribute(KeyValue::new(key, told(value)));
    }

    fn failed(&self) {
        self.span().set_status(Status::error(""));
    }

    fn happened(&self, what: String, attributes: Vec<(&'static str, Value)>) {
        let attributes = attributes.into_iter().map(|(key, value)| KeyValue::new(key, told(value)));
        self.span().add_event(what, attributes.collect());
    }
}

fn told(value: Value) -> opentelemetry::Value {
    match value {
        Value::Known(text) => text.into(),
        Value::Text(text) => text.into(),
        Value::Shared(text) => StringValue::from(text).into(),
        Value::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
    }
}

/// What came with a message; nothing when it can't be read.
fn read(parent: &TraceContext) -> Context {
    let short = |state: &&Arc<str>| state.len() <= MOST_STATE;
    let state = parent.state.as_ref().filter(short).cloned();
    let fields = Fields(TraceContext { parent: parent.parent.clone(), state });
    TraceContextPropagator::new().extract_with_context(&Context::new(), &fields)
}

/// `traceparent` in the version that there is, 00. It goes with every message, and the library's own
/// way takes ten times as long.
fn parent_of(context: &SpanContext) -> Arc<str> {
    let flags = [context.trace_flags().to_u8() & TraceFlags::SAMPLED.to_u8()];
    let fields: [&[u8]; 4] =
        [&[0], &context.trace_id().to_bytes(), &context.span_id().to_bytes(), &flags];
    let mut text = String::with_capacity(55);
    for (place, field) in fields.into_iter().enumerate() {
        if place > 0 {
            text.push('-');
        }
        for byte in field {
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
    }
    text.into()
}

fn digit(half: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(half)])
}

/// W3C Trace Context, in the fields of envelopes.
struct Fields(TraceContext);

impl Extractor for Fields {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.parent.as_deref(),
            "tracestate" => self.0.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

    use super::*;

    fn spans(share: f64) -> Spans {
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
        let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
        Spans { tracer: provider.tracer("test"), content: false }
    }

    fn context(parent: &str, state: &str) -> TraceContext {
        TraceContext { parent: Some(parent.into()), state: Some(state.into()) }
    }

    const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const DARK: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn a_trace_goes_on_under_its_id_and_with_its_state() {
        for (parent, share, is_told) in [(THEIRS, 0.0, true), (DARK, 1.0, false)] {
            let spans = spans(share);
            let span = spans.follow(Kind::Consumer, &context(parent, "vendor=1")).unwrap();
            let child = span.child(Kind::Producer);
            for one in [&span, &child] {
                let told = one.context();
                let text = told.parent.unwrap();
                assert_eq!((&text[..36], &text[52..]), (&parent[..36], &parent[52..]));
                assert_ne!(text[36..52], parent[36..52], "a span has an id of its own");
                assert_eq!(told.state.as_deref(), Some("vendor=1"));
                assert_eq!(one.is_told(), is_told);
            }
            assert_ne!(span.context(), child.context());
        }
    }

    #[test]
    fn what_is_written_is_what_the_library_writes() {
        struct Taken(Option<String>);
        impl opentelemetry::propagation::Injector for Taken {
            fn set(&mut self, key: &str, value: String) {
                if key == "traceparent" {
                    self.0 = Some(value);
                }
            }
        }
        for parent in [THEIRS, DARK] {
            let parent = read(&context(parent, ""));
            let mut taken = Taken(None);
            TraceContextPropagator::new().inject_context(&parent, &mut taken);
            let text = parent_of(parent.span().span_context());
            assert_eq!(Some(&*text), taken.0.as_deref());
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_parent() {
        for parent in ["", "00-short", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert!(spans(1.0).follow(Kind::Server, &context(parent, "")).is_none(), "{parent}");
        }
        assert!(spans(1.0).follow(Kind::Server, &TraceContext::default()).is_none());
        let long = format!("vendor={}", "x".repeat(MOST_STATE));
        let span = spans(1.0).follow(Kind::Server, &context(THEIRS, &long)).unwrap();
        assert_eq!(span.context().state, None);
        assert_eq!(span.context().parent.unwrap()[3..35], THEIRS[3..35]);
    }

    #[test]
    fn a_share_of_the_traces_that_begin_here_is_told() {
        let spans = spans(0.25);
        let told = (0..1000).filter(|_| spans.begin(Kind::Internal).is_told()).count();
        assert!((150..350).contains(&told), "{told}");
    }
}
