//! Spans as OpenTelemetry has them, sent over OTLP.
//!
//! Spans at the level `debug` of the house's own code are sent, and warnings and errors that are
//! logged within them. Spans at other levels are for log lines only.

use std::{sync::Arc, time::Duration};

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Tracer},
};
use rockbot_contracts::{TraceContext, trace::Propagator};
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::{
    Layer,
    filter::{FilterFn, Filtered, filter_fn},
    registry::LookupSpan,
};

use super::{
    section::{OtlpProtocol, TelemetrySection},
    watched::Watched,
};

/// Spans that wait to be sent; what is beyond is dropped.
const MOST_WAITING: usize = 16_384;
/// Spans in one message.
const BATCH: usize = 512;
/// How long a span waits for others.
const BATCH_AFTER: Duration = Duration::from_secs(1);
/// How long the collector may take for a message.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// How long a process that stops waits for its last spans to be sent.
const LAST_WITHIN: Duration = Duration::from_secs(1);
/// The longest `tracestate` that is taken over; the specification asks for as much at least.
const MOST_STATE: usize = 512;

/// Sends the spans of this process until [`Traces::shut_down`].
#[derive(Debug, Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    content: bool,
}

/// Who a process is, in the words of traces.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Name of the binary.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Which of its replicas.
    pub instance: &'a str,
}

impl Traces {
    /// Starts to send where the section says; `None` when it says nowhere. To be called within a
    /// runtime.
    ///
    /// # Errors
    /// When the endpoint can't be used. One that does not answer can.
    pub fn start(
        section: &TelemetrySection,
        identity: Identity<'_>,
    ) -> Result<Option<Self>, ExporterBuildError> {
        let Some(url) = section.url() else { return Ok(None) };
        let exporter = match section.otlp_protocol {
            OtlpProtocol::Grpc => {
                let exporter = SpanExporter::builder().with_tonic();
                exporter.with_endpoint(url).with_timeout(EXPORT_WITHIN).build()?
            }
            OtlpProtocol::Http => {
                let exporter = SpanExporter::builder().with_http();
                exporter.with_endpoint(url).with_timeout(EXPORT_WITHIN).build()?
            }
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MOST_WAITING)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(BATCH_AFTER)
            .build();
        let processor = BatchSpanProcessor::builder(Watched::new(exporter));
        let processor = processor.with_batch_config(batches).build();
        let root = Sampler::TraceIdRatioBased(section.sample_ratio);
        let resource = Resource::builder()
            .with_service_name(identity.name)
            .with_attributes([
                KeyValue::new("service.version", identity.version),
                KeyValue::new("service.instance.id", identity.instance.to_owned()),
                KeyValue::new("service.namespace", section.service_namespace.clone()),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_resource(resource)
            .build();
        Ok(Some(Self { provider, content: section.content }))
    }

    /// What takes spans from `tracing`.
    pub fn layer<S>(&self) -> Filtered<OpenTelemetryLayer<S, Tracer>, FilterFn, S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("rockbot"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            // Nothing here asks OpenTelemetry which span is current, and telling it takes two looks at
            // the span at each poll.
            .with_context_activation(false)
            .with_filter(filter_fn(is_recorded as fn(&Metadata<'_>) -> bool))
    }

    /// What has traces go on in other processes.
    #[must_use]
    pub fn propagator(&self) -> impl Propagator + 'static {
        W3c { text: TraceContextPropagator::new(), content: self.content }
    }

    /// Sends what waits, for 1 s at most, and ends. Blocks.
    pub fn shut_down(&self) {
        // What could not be sent by now is lost, and there is nobody left to tell.
        let _ = self.provider.shutdown_with_timeout(LAST_WITHIN);
    }
}

fn is_recorded(metadata: &Metadata<'_>) -> bool {
    let ours = metadata.target().starts_with("rockbot");
    ours && match metadata.is_span() {
        true => *metadata.level() == Level::DEBUG,
        false => *metadata.level() <= Level::WARN,
    }
}

/// W3C Trace Context, in the fields of envelopes.
struct W3c {
    text: TraceContextPropagator,
    content: bool,
}

impl Propagator for W3c {
    fn context_of(&self, span: &Span) -> TraceContext {
        let mut fields = Fields(TraceContext::default());
        self.text.inject_context(&span.context(), &mut fields);
        fields.0
    }

    fn follow(&self, span: &Span, parent: &TraceContext) {
        let short = |state: &&Arc<str>| state.len() <= MOST_STATE;
        let state = parent.state.as_ref().filter(short).cloned();
        let fields = Fields(TraceContext { parent: parent.parent.clone(), state });
        let context = self.text.extract_with_context(&Context::new(), &fields);
        if context.has_active_span() {
            // It fails for a span that nobody records.
            let _ = span.set_parent(context);
        }
    }

    fn records_content(&self) -> bool {
        self.content
    }
}

struct Fields(TraceContext);

impl Injector for Fields {
    fn set(&mut self, key: &str, value: String) {
        match key {
            "traceparent" => self.0.parent = Some(value.into()),
            "tracestate" if !value.is_empty() => self.0.state = Some(value.into()),
            _ => {}
        }
    }
}

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
