//! The house's spans as OpenTelemetry has them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::{
    Context, KeyValue, StringValue,
    trace::{
        Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
        Tracer as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, Span};
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
        let parent = Context::new().with_remote_span_context(read(parent)?);
        Some(Made::within(&self.tracer, &parent, kind))
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
fn read(parent: &TraceContext) -> Option<SpanContext> {
    let (trace, span, flags) = ids_of(parent.parent.as_deref()?)?;
    let short = parent.state.as_deref().filter(|state| state.len() <= MOST_STATE);
    let state = short.and_then(|state| state.parse().ok()).unwrap_or_default();
    let context = SpanContext::new(trace, span, flags, true, state);
    context.is_valid().then_some(context)
}

/// Reads `traceparent` as the [specification](https://www.w3.org/TR/trace-context/#traceparent-header)
/// has it: of a later version, what version 00 has.
fn ids_of(parent: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let (fields, rest) = parent.as_bytes().split_first_chunk::<55>()?;
    let version = number(&fields[..2])?;
    let is_known = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => matches!(rest, [] | [b'-', ..]),
    };
    if !is_known || [fields[2], fields[35], fields[52]] != [b'-'; 3] {
        return None;
    }
    let trace = number(&fields[3..35])?;
    let span = u64::try_from(number(&fields[36..52])?).ok()?;
    let flags = u8::try_from(number(&fields[53..])?).ok()?;
    Some((trace.into(), span.into(), TraceFlags::new(flags) & TraceFlags::SAMPLED))
}

/// At most 32 digits, the letters among them small.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// `traceparent` in the version that there is, 00. It goes with every message, as what [`ids_of`] reads,
/// and the library's own way takes ten times as long.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use opentelemetry::{
        propagation::{Extractor, Injector, TextMapPropagator},
        trace::TracerProvider,
    };
    use opentelemetry_sdk::{
        propagation::TraceContextPropagator,
        trace::{Sampler, SdkTracerProvider},
    };

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

    /// What the library reads and writes.
    #[derive(Default)]
    struct Carried(BTreeMap<String, String>);

    impl Injector for Carried {
        fn set(&mut self, key: &str, value: String) {
            self.0.insert(key.to_owned(), value);
        }
    }

    impl Extractor for Carried {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key).map(String::as_str)
        }

        fn keys(&self) -> Vec<&str> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_read_and_written_is_what_the_library_reads_and_writes() {
        let later = format!("cc{}-what-comes", &THEIRS[2..]);
        let many_flags = format!("{}ff", &THEIRS[..53]);
        for parent in [THEIRS, DARK, &later, &many_flags, &later[..55]] {
            let ours = read(&context(parent, "vendor=1,other=2")).unwrap();
            let mut carried = Carried::default();
            carried.set("traceparent", parent.to_owned());
            carried.set("tracestate", "vendor=1,other=2".to_owned());
            let theirs = TraceContextPropagator::new().extract(&carried);
            assert_eq!(&ours, theirs.span().span_context());
            TraceContextPropagator::new().inject_context(&theirs, &mut carried);
            assert_eq!(carried.get("traceparent"), Some(&*parent_of(&ours)));
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_parent() {
        let with = |place: usize, what: &str| {
            let mut parent = THEIRS.to_owned();
            parent.replace_range(place..place + what.len(), what);
            parent
        };
        for parent in [
            "",
            "00-short",
            "0-1-2-1",
            &THEIRS[..54],
            &format!("{THEIRS}-more"),
            &format!("cc{}0", &THEIRS[2..]),
            &with(0, "ff"),
            &with(0, "0x"),
            &with(2, "_"),
            &with(35, "_"),
            &with(52, "_"),
            &with(3, "4B"),
            &with(36, "+0"),
            &with(54, "g"),
            &with(3, &"0".repeat(32)),
            &with(36, &"0".repeat(16)),
            &"é".repeat(28),
        ] {
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
