//! Spans in OTLP's protobuf, `ExportTraceServiceRequest`, written straight from what the SDK keeps.
//!
//! Field numbers are those of [opentelemetry-proto](https://github.com/open-telemetry/opentelemetry-proto)
//! 1.x, which are stable.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, Value,
    trace::{Event, Link, SpanContext, SpanId, SpanKind, Status},
};
use opentelemetry_sdk::{Resource, trace::SpanData};

use super::protobuf::Writer;

/// The most bytes before a message: a key of one and a length of ten.
const KEY_AND_LENGTH: usize = 11;

/// `SpanFlags`: whether the next one means anything, and whether the parent was in another process.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Where all spans of a process come from, written once.
#[derive(Debug)]
pub(super) struct Origin {
    /// `ResourceSpans`, but for what holds the spans.
    process: Vec<u8>,
    /// `ScopeSpans`, but for the spans.
    scope: Vec<u8>,
}

impl Origin {
    pub(super) fn new(resource: &Resource, scope: &InstrumentationScope) -> Self {
        let mut process = Writer::default();
        process.message(1, |about| {
            for (key, value) in resource {
                about.message(1, |pair| pair_of(pair, key.as_str(), value));
            }
        });
        process.text(3, resource.schema_url().unwrap_or_default());
        let mut of_scope = Writer::default();
        of_scope.message(1, |about| about_scope(about, scope));
        of_scope.text(3, scope.schema_url().unwrap_or_default());
        Self { process: process.finish(), scope: of_scope.finish() }
    }

    /// The request for spans that [`add_span`] wrote. The spans are the last fields, so that they are
    /// copied once: the order of fields is free.
    pub(super) fn request(&self, spans: &[u8]) -> Vec<u8> {
        let in_scope = self.scope.len() + spans.len();
        let mut of_scope = Writer::default();
        of_scope.begin(2, in_scope);
        let of_scope = of_scope.finish();
        let in_process = self.process.len() + of_scope.len() + in_scope;
        let mut request = Writer::with_capacity(in_process + KEY_AND_LENGTH);
        request.begin(1, in_process);
        for part in [&self.process, &*of_scope, &self.scope, spans] {
            request.fields(part);
        }
        request.finish()
    }
}

/// Writes a span, as a field of `ScopeSpans`.
pub(super) fn add_span(spans: &mut Writer, one: &SpanData) {
    spans.message(2, |writer| span(writer, one));
}

fn about_scope(writer: &mut Writer, scope: &InstrumentationScope) {
    writer.text(1, scope.name());
    writer.text(2, scope.version().unwrap_or_default());
    for attribute in scope.attributes() {
        writer.message(3, |pair| pair_of(pair, attribute.key.as_str(), &attribute.value));
    }
}

fn span(writer: &mut Writer, span: &SpanData) {
    context(writer, &span.span_context);
    if span.parent_span_id != SpanId::INVALID {
        writer.bytes(4, &span.parent_span_id.to_bytes());
    }
    writer.text(5, &span.name);
    writer.number(6, kind(&span.span_kind));
    writer.fixed64(7, nanos(span.start_time));
    writer.fixed64(8, nanos(span.end_time));
    attributes(writer, 9, &span.attributes);
    writer.number(10, span.dropped_attributes_count.into());
    for one in span.events.iter() {
        writer.message(11, |writer| event(writer, one));
    }
    writer.number(12, span.events.dropped_count.into());
    for one in span.links.iter() {
        writer.message(13, |writer| link(writer, one));
    }
    writer.number(14, span.links.dropped_count.into());
    writer.message(15, |writer| status(writer, &span.status));
    writer.fixed32(16, flags(&span.span_context, span.parent_span_is_remote));
}

fn event(writer: &mut Writer, event: &Event) {
    writer.fixed64(1, nanos(event.timestamp));
    writer.text(2, &event.name);
    attributes(writer, 3, &event.attributes);
    writer.number(4, event.dropped_attributes_count.into());
}

fn link(writer: &mut Writer, link: &Link) {
    context(writer, &link.span_context);
    attributes(writer, 4, &link.attributes);
    writer.number(5, link.dropped_attributes_count.into());
    writer.fixed32(6, flags(&link.span_context, link.span_context.is_remote()));
}

fn status(writer: &mut Writer, status: &Status) {
    if let Status::Error { description } = status {
        writer.text(2, description);
    }
    writer.number(
        3,
        match status {
            Status::Unset => 0,
            Status::Ok => 1,
            Status::Error { .. } => 2,
        },
    );
}

/// The first three fields of spans and of links.
fn context(writer: &mut Writer, context: &SpanContext) {
    writer.bytes(1, &context.trace_id().to_bytes());
    writer.bytes(2, &context.span_id().to_bytes());
    writer.text(3, &context.trace_state().header());
}

fn flags(context: &SpanContext, is_remote: bool) -> u32 {
    let remote = if is_remote { IS_REMOTE } else { 0 };
    u32::from(context.trace_flags().to_u8()) | KNOWS_REMOTE | remote
}

fn kind(kind: &SpanKind) -> u64 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

/// Nanoseconds since 1970; 0 for what was before.
fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attributes(writer: &mut Writer, field: u32, attributes: &[KeyValue]) {
    for attribute in attributes {
        writer.message(field, |pair| pair_of(pair, attribute.key.as_str(), &attribute.value));
    }
}

fn pair_of(writer: &mut Writer, key: &str, value: &Value) {
    writer.text(1, key);
    writer.message(2, |writer| any(writer, value));
}

/// `AnyValue`, a choice, whose fields are written also when they are empty or nought.
fn any(writer: &mut Writer, value: &Value) {
    match value {
        Value::Bool(value) => writer.chosen_number(2, u64::from(*value)),
        // The two's complement, as protobuf has it.
        Value::I64(value) => writer.chosen_number(3, value.cast_unsigned()),
        Value::F64(value) => writer.fixed64(4, value.to_bits()),
        Value::String(text) => writer.bytes(1, text.as_str().as_bytes()),
        Value::Array(array) => writer.message(5, |writer| match array {
            Array::Bool(all) => every(writer, all.iter().copied().map(Value::from)),
            Array::I64(all) => every(writer, all.iter().copied().map(Value::from)),
            Array::F64(all) => every(writer, all.iter().copied().map(Value::from)),
            Array::String(all) => every(writer, all.iter().cloned().map(Value::from)),
            // There is no other yet.
            _ => {}
        }),
        _ => {}
    }
}

fn every(writer: &mut Writer, values: impl Iterator<Item = Value>) {
    for value in values {
        writer.message(1, |writer| any(writer, &value));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use opentelemetry::{
        StringValue,
        trace::{TraceFlags, TraceId, TraceState},
    };
    use opentelemetry_proto::{
        tonic::collector::trace::v1::ExportTraceServiceRequest,
        transform::{
            common::tonic::ResourceAttributesWithSchema,
            trace::tonic::group_spans_by_resource_and_scope,
        },
    };
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};
    use prost::Message;

    use super::*;

    fn context(flags: TraceFlags, is_remote: bool, state: &str) -> SpanContext {
        let state = state.parse::<TraceState>().unwrap();
        SpanContext::new(TraceId::from(7), SpanId::from(9), flags, is_remote, state)
    }

    fn of_every_kind(text: &str) -> Vec<KeyValue> {
        let text = StringValue::from(text.to_owned());
        vec![
            KeyValue::new("none", ""),
            KeyValue::new("text", text.clone()),
            KeyValue::new("false", false),
            KeyValue::new("true", true),
            KeyValue::new("nought", 0),
            KeyValue::new("below", -1),
            KeyValue::new("large", i64::MAX),
            KeyValue::new("half", 0.5),
            KeyValue::new("flags", Value::Array(vec![true, false].into())),
            KeyValue::new("numbers", Value::Array(vec![1, -2, 300].into())),
            KeyValue::new("shares", Value::Array(vec![0.0, 1e300].into())),
            KeyValue::new("texts", Value::Array(vec![text, "".into()].into())),
        ]
    }

    /// A span with something in every field, and one with as little as there can be.
    fn spans(text: &str) -> [SpanData; 2] {
        let time = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let mut events = SpanEvents::default();
        events.events = vec![
            Event::new(text.to_owned(), time, of_every_kind(text), 3),
            Event::with_name("bare"),
        ];
        events.events[1].timestamp = time;
        events.dropped_count = 4;
        let mut links = SpanLinks::default();
        let other = context(TraceFlags::SAMPLED, true, "a=1,b=2");
        links.links = vec![Link::new(other, of_every_kind(text), 5)];
        links.dropped_count = 200;
        let full = SpanData {
            span_context: context(TraceFlags::SAMPLED, false, "vendor=1"),
            parent_span_id: SpanId::from(11),
            parent_span_is_remote: true,
            span_kind: SpanKind::Producer,
            name: text.to_owned().into(),
            start_time: time,
            end_time: time + Duration::from_millis(3),
            attributes: of_every_kind(text),
            dropped_attributes_count: 6,
            events,
            links,
            status: Status::error(text.to_owned()),
            instrumentation_scope: scope(text),
        };
        [full, SpanData { instrumentation_scope: scope(text), ..span("") }]
    }

    fn scope(text: &str) -> InstrumentationScope {
        InstrumentationScope::builder("full")
            .with_version("1")
            .with_schema_url("https://example.org/scope")
            .with_attributes(of_every_kind(text))
            .build()
    }

    /// A span that has a name at most.
    pub(in super::super) fn span(name: &str) -> SpanData {
        SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.to_owned().into(),
            start_time: UNIX_EPOCH - Duration::from_secs(1),
            end_time: UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    /// `spans` are of one scope.
    fn check(resource: &Resource, spans: Vec<SpanData>) {
        let mut written = Writer::with_capacity(0);
        for span in &spans {
            add_span(&mut written, span);
        }
        let scope = spans[0].instrumentation_scope.clone();
        let about = ResourceAttributesWithSchema::from(resource);
        let request = Origin::new(resource, &scope).request(written.bytes_so_far());
        let ours = ExportTraceServiceRequest::decode(&*request).unwrap();
        let theirs = group_spans_by_resource_and_scope(spans, &about);
        assert_eq!(ours, ExportTraceServiceRequest { resource_spans: theirs });
    }

    #[test]
    fn a_collector_reads_what_the_library_would_have_sent() {
        // Lengths at which a message's own length takes another byte.
        for length in [0, 1, 50, 100, 127, 128, 1000, 16_000, 16_383, 16_384, 3_000_000] {
            let text = "x".repeat(length);
            let resource = Resource::builder_empty()
                .with_schema_url(of_every_kind(&text), "https://example.org/resource")
                .build();
            let [full, bare] = spans(&text);
            check(&resource, vec![full.clone(), full, bare.clone(), bare]);
        }
        check(&Resource::builder_empty().build(), vec![span("")]);
    }

    #[test]
    fn every_kind_and_every_end_is_told() {
        let kinds = [
            SpanKind::Internal,
            SpanKind::Server,
            SpanKind::Client,
            SpanKind::Producer,
            SpanKind::Consumer,
        ];
        let of = |span_kind, status| SpanData { span_kind, status, ..span("") };
        let ends = [Status::Unset, Status::Ok, Status::error("")];
        let all =
            kinds.iter().flat_map(|kind| ends.iter().map(|end| of(kind.clone(), end.clone())));
        check(&Resource::builder_empty().build(), all.collect());
    }

    #[test]
    fn many_spans_are_one_request() {
        let all = spans("some").into_iter().cycle().take(512).collect();
        check(&Resource::builder_empty().build(), all);
    }
}
