//! Export of spans over OTLP, with every span counted in `rockbot_telemetry_spans_total`.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::counter;
use opentelemetry::Context;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig,
    tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfig, BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter,
        SpanProcessor,
    },
};
use tracing::{info, warn};

use super::section::{Endpoint, OtlpProtocol};

/// Maximum number of spans that wait for their export. Overridden by `OTEL_BSP_MAX_QUEUE_SIZE`.
const QUEUE_SIZE: usize = 16_384;
/// Delay of an export. Overridden by `OTEL_BSP_SCHEDULE_DELAY`.
const EXPORT_DELAY: Duration = Duration::from_secs(1);

/// A batch processor with a bounded queue. A span that finds the queue full is counted as lost; the SDK's
/// processor counts it as well, but does not expose the number.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    processor: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    capacity: usize,
}

impl BoundedProcessor {
    /// Starts to export to `endpoint` on a thread of its own. Over gRPC it must be called within a
    /// runtime, which has to outlive the processor.
    pub(super) fn start(
        endpoint: &Endpoint,
        protocol: OtlpProtocol,
    ) -> Result<Self, ExporterBuildError> {
        let queued = Arc::<AtomicUsize>::default();
        let exporter = CountedExporter {
            exporter: build(endpoint, protocol)?,
            queued: queued.clone(),
            is_failing: AtomicBool::new(false),
        };
        let capacity = queue_size();
        let processor = BatchSpanProcessor::new(exporter, batch_config(capacity));
        Ok(Self { processor, queued, capacity })
    }
}

fn build(endpoint: &Endpoint, protocol: OtlpProtocol) -> Result<OtlpExporter, ExporterBuildError> {
    let url = endpoint.configured_url(protocol);
    match protocol {
        OtlpProtocol::Grpc => {
            let mut builder = OtlpExporter::builder().with_tonic();
            if endpoint.url.starts_with("https:") {
                // Without this the exporter trusts no certificate.
                builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
            }
            match url {
                Some(url) => builder.with_endpoint(url).build(),
                None => builder.build(),
            }
        }
        OtlpProtocol::Http => {
            let builder = OtlpExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
            match url {
                Some(url) => builder.with_endpoint(url).build(),
                None => builder.build(),
            }
        }
    }
}

fn queue_size() -> usize {
    let size = env::var("OTEL_BSP_MAX_QUEUE_SIZE").ok().and_then(|size| size.parse().ok());
    size.filter(|size| *size > 0).unwrap_or(QUEUE_SIZE)
}

fn batch_config(queue_size: usize) -> BatchConfig {
    let config = BatchConfigBuilder::default().with_max_queue_size(queue_size);
    if env::var_os("OTEL_BSP_SCHEDULE_DELAY").is_some() {
        config.build()
    } else {
        config.with_scheduled_delay(EXPORT_DELAY).build()
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.processor.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.queued.fetch_add(1, Ordering::Relaxed) < self.capacity {
            self.processor.on_end(span);
        } else {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            count("lost", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

/// An exporter that counts spans and logs when exports begin to fail and when they succeed again.
#[derive(Debug)]
struct CountedExporter {
    exporter: OtlpExporter,
    queued: Arc<AtomicUsize>,
    is_failing: AtomicBool,
}

impl SpanExporter for CountedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.exporter.export(batch).await;
        self.queued.fetch_sub(spans, Ordering::Relaxed);
        count(if exported.is_ok() { "sent" } else { "lost" }, spans);
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => warn!(%error, "span export failed"),
            Ok(()) if was_failing => info!("span export resumed"),
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn count(outcome: &'static str, spans: usize) {
    let spans = u64::try_from(spans).unwrap_or(u64::MAX);
    counter!("rockbot_telemetry_spans_total", "outcome" => outcome).increment(spans);
}
