//! Traces, sent over OTLP.

use std::time::Duration;

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use rockbot_contracts::trace::Recorder;

use super::{
    section::{OtlpProtocol, TelemetrySection},
    spans::Spans,
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

    /// What records the spans of the house.
    pub(crate) fn recorder(&self) -> impl Recorder + 'static {
        Spans { tracer: self.provider.tracer("rockbot"), content: self.content }
    }

    /// Sends what waits, for 1 s at most, and ends. Blocks.
    pub fn shut_down(&self) {
        // What could not be sent by now is lost, and there is nobody left to tell.
        let _ = self.provider.shutdown_with_timeout(LAST_WITHIN);
    }
}
