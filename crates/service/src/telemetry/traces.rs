//! Traces of a process, exported over OTLP.

use std::{env, time::Duration};

use opentelemetry::{KeyValue, global::set_text_map_propagator, trace::TracerProvider};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    resource::EnvResourceDetector,
    trace::{Sampler, SdkTracerProvider},
};
use rockbot_contracts::trace;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    registry::LookupSpan,
};

use super::{exporter::BoundedProcessor, section::TelemetrySection};
use crate::tls::install_tls_provider;

/// Instrumentation scope of the spans.
const SCOPE: &str = "rockbot";
/// Time limit for the last export of a stopping process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The traces of this process. Spans are exported until [`Traces::shut_down`].
#[derive(Debug, Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    records_content: bool,
}

/// Identity of a process in its traces.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Name of the binary.
    pub name: &'static str,
    /// Version of the build.
    pub version: &'static str,
    /// Name among the replicas.
    pub instance: &'a str,
}

impl Traces {
    /// Creates the exporter, or returns `None` if no endpoint is configured. Must be called within a
    /// runtime, which must outlive the traces.
    ///
    /// # Errors
    /// When the endpoint or a variable of OpenTelemetry is invalid. An unreachable endpoint is not an
    /// error.
    pub fn start(
        section: &TelemetrySection,
        identity: Identity<'_>,
    ) -> Result<Option<Self>, InvalidExporter> {
        let Some(endpoint) = section.endpoint() else { return Ok(None) };
        install_tls_provider();
        let protocol = section.protocol().map_err(InvalidExporter::Protocol)?;
        let mut provider = SdkTracerProvider::builder()
            .with_span_processor(BoundedProcessor::start(&endpoint, protocol)?)
            .with_resource(resource(section, identity));
        // Without a ratio the SDK applies `OTEL_TRACES_SAMPLER`, or samples every trace.
        if let Some(ratio) = section.sample_ratio {
            let root = Sampler::TraceIdRatioBased(ratio);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(root)));
        }
        Ok(Some(Self { provider: provider.build(), records_content: section.content }))
    }

    /// Returns the layer that exports spans with the target [`trace::TARGET`], with RockBot's warnings and
    /// errors as their events.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let exports = filter_fn(|metadata: &Metadata<'_>| {
            if metadata.is_span() {
                metadata.target() == trace::TARGET
            } else {
                *metadata.level() <= Level::WARN && metadata.target().starts_with("rockbot")
            }
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SCOPE))
            .with_location(false)
            .with_target(false)
            .with_level(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_error_fields_to_exceptions(false)
            .with_error_records_to_exceptions(false)
            // Without the hint, debug events of dependencies would pass through filters.
            .with_filter(exports.with_max_level_hint(LevelFilter::INFO))
    }

    /// Installs the propagation of trace contexts in messages, and the setting for content in spans.
    pub(crate) fn install(&self) {
        set_text_map_propagator(TraceContextPropagator::new());
        trace::set_records_content(self.records_content);
    }

    /// Exports pending spans, for 1 s at most, and stops. Blocks: must not be called from async code.
    pub fn shut_down(&self) {
        // Spans that are still pending are lost.
        let _ = self.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// Returns the resource of the spans. `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` take
/// precedence, because an operator sets them for one deployment.
fn resource(section: &TelemetrySection, identity: Identity<'_>) -> Resource {
    let builder = Resource::builder()
        .with_service_name(identity.name)
        .with_attributes([
            KeyValue::new("service.version", identity.version),
            KeyValue::new("service.instance.id", identity.instance.to_owned()),
            KeyValue::new("service.namespace", section.service_namespace.clone()),
        ])
        .with_detector(Box::new(EnvResourceDetector::new()));
    match env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => builder.with_service_name(name).build(),
        _ => builder.build(),
    }
}

/// Reason why traces cannot be exported from this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExporter {
    /// The transport is not supported.
    #[error("span export cannot start: {0}")]
    Protocol(String),
    /// The endpoint or a variable of OpenTelemetry is invalid.
    #[error("span export cannot start: {0}")]
    Exporter(#[from] ExporterBuildError),
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, SpanKind, Status};
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        trace::{InMemorySpanExporter, SimpleSpanProcessor, SpanData},
    };
    use rockbot_contracts::TraceContext;
    use rockbot_testkit::{otlp_collector::Collector, proxy::FaultProxy};
    use tracing::{
        Instrument, Span, debug, error, info, info_span, instrument::WithSubscriber,
        subscriber::DefaultGuard, warn,
    };
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    /// Traces recorded in memory, for the current thread.
    struct Recorded {
        exporter: InMemorySpanExporter,
        _subscriber: DefaultGuard,
    }

    impl Recorded {
        fn start(ratio: f64) -> Self {
            let exporter = InMemorySpanExporter::default();
            let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
            let provider = SdkTracerProvider::builder()
                .with_span_processor(SimpleSpanProcessor::new(exporter.clone()))
                .with_sampler(sampler)
                .build();
            let traces = Traces { provider, records_content: false };
            traces.install();
            let subscriber = tracing_subscriber::registry().with(traces.layer());
            Self { exporter, _subscriber: tracing::subscriber::set_default(subscriber) }
        }

        fn spans(&self) -> Vec<SpanData> {
            self.exporter.get_finished_spans().unwrap()
        }
    }

    fn context(parent: &str, state: &str) -> TraceContext {
        TraceContext { parent: Some(parent.into()), state: Some(state.into()) }
    }

    fn span() -> Span {
        info_span!(target: trace::TARGET, "work", otel.name = "do work", otel.kind = "client")
    }

    #[tokio::test]
    async fn span_continues_trace_with_its_state_and_sampling() {
        for (parent, ratio, is_sampled) in [(SAMPLED, 0.0, true), (UNSAMPLED, 1.0, false)] {
            let recorded = Recorded::start(ratio);
            let outer = span();
            trace::continue_from(&outer, &context(parent, "vendor=1"));
            let inner = async { span() }.instrument(outer.clone()).await;
            for span in [&outer, &inner] {
                let context = trace::context_of(span);
                let text = context.parent.unwrap();
                assert_eq!((&text[..36], &text[52..]), (&parent[..36], &parent[52..]));
                assert_ne!(text[36..52], parent[36..52], "span ids differ");
                assert_eq!(context.state.as_deref(), Some("vendor=1"));
            }
            assert_ne!(trace::context_of(&outer), trace::context_of(&inner));
            drop((inner, outer));
            assert_eq!(recorded.spans().len(), if is_sampled { 2 } else { 0 });
        }
    }

    #[tokio::test]
    async fn malformed_context_keeps_current_parent() {
        let recorded = Recorded::start(1.0);
        let long_state = format!("vendor={}", "x".repeat(600));
        let outer = span();
        async {
            for parent in ["", "00-short", &SAMPLED[..54], &format!("ff{}", &SAMPLED[2..])] {
                trace::continue_from(&span(), &context(parent, "vendor=1"));
            }
            trace::continue_from(&span(), &TraceContext::default());
            let other = span();
            trace::continue_from(&other, &context(SAMPLED, &long_state));
            assert_eq!(trace::context_of(&other).state, None);
        }
        .instrument(outer.clone())
        .await;
        drop(outer);
        let spans = recorded.spans();
        let [inner @ .., other, outer] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(inner.len(), 5);
        assert!(inner.iter().all(|span| span.parent_span_id == outer.span_context.span_id()));
        assert_eq!(outer.parent_span_id, SpanId::INVALID);
        assert_eq!(other.span_context.trace_id().to_string(), SAMPLED[3..35]);
    }

    #[tokio::test]
    async fn log_span_between_spans_does_not_break_the_trace() {
        let recorded = Recorded::start(1.0);
        let outer = span();
        let scope = async {
            assert_eq!(trace::current(), trace::context_of(&outer));
            drop(span());
            trace::Scope::current()
        };
        let scope = scope.instrument(info_span!("log")).instrument(outer.clone()).await;
        assert_eq!(trace::current(), TraceContext::default());
        scope.run(async { drop(span()) }.instrument(info_span!("log"))).await;
        let parent = outer.context_id();
        drop(outer);
        let spans = recorded.spans();
        assert_eq!(spans.len(), 3, "log spans are not exported: {spans:?}");
        assert!(spans[..2].iter().all(|span| span.parent_span_id == parent));
    }

    trait ContextId {
        fn context_id(&self) -> SpanId;
    }

    impl ContextId for Span {
        fn context_id(&self) -> SpanId {
            let parent = trace::context_of(self).parent.unwrap();
            SpanId::from_hex(&parent[36..52]).unwrap()
        }
    }

    #[tokio::test]
    async fn ratio_selects_a_share_of_new_traces() {
        let recorded = Recorded::start(0.25);
        (0..1000).for_each(|_| drop(span()));
        let sampled = recorded.spans().len();
        assert!((150..350).contains(&sampled), "{sampled}");
    }

    #[tokio::test]
    async fn own_warnings_become_span_events() {
        let recorded = Recorded::start(1.0);
        warn!("outside of spans");
        let outer = span();
        async {
            debug!("too low");
            info!("too low");
            warn!(target: "another", "of a dependency");
            warn!(attempt = 3_i64, "slow response");
            error!(reason = %"no route", "route missing");
        }
        .instrument(outer.clone())
        .await;
        drop(outer);
        let spans = recorded.spans();
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((&*span.name, &span.span_kind), ("do work", &SpanKind::Client));
        assert!(matches!(span.status, Status::Error { .. }));
        assert!(span.attributes.is_empty(), "{:?}", span.attributes);
        let text = |pairs: &[KeyValue]| {
            let pairs = pairs.iter().map(|one| format!("{}={}", one.key, one.value));
            pairs.collect::<Vec<_>>().join(" ")
        };
        let events: Vec<_> = span
            .events
            .iter()
            .map(|event| format!("{}: {}", event.name, text(&event.attributes)))
            .collect();
        let slow = format!("slow response: level=WARN target={} attempt=3", module_path!());
        let missing =
            format!("route missing: level=ERROR target={} reason=no route", module_path!());
        assert_eq!(events, [slow, missing]);
    }

    #[tokio::test]
    async fn failure_sets_error_type_and_status() {
        let recorded = Recorded::start(1.0);
        trace::fail(&span(), "timeout");
        let spans = recorded.spans();
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(span.attributes, [KeyValue::new("error.type", "timeout")]);
        assert!(matches!(span.status, Status::Error { .. }));
    }

    #[test]
    fn disabled_span_has_no_context() {
        let span = span();
        trace::continue_from(&span, &context(SAMPLED, "vendor=1"));
        assert_eq!(trace::context_of(&span), TraceContext::default());
        assert!(!trace::records_content(&span));
    }

    fn identity() -> Identity<'static> {
        Identity { name: "rockbot-test", version: "1", instance: "one" }
    }

    fn section(endpoint: String) -> TelemetrySection {
        TelemetrySection { otlp_endpoint: Some(endpoint), ..TelemetrySection::default() }
    }

    async fn export(traces: &Traces) -> OTelSdkResult {
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        async { drop(span()) }.with_subscriber(subscriber).await;
        let provider = traces.provider.clone();
        tokio::task::spawn_blocking(move || provider.force_flush()).await.unwrap()
    }

    #[tokio::test]
    async fn spans_arrive_under_process_name_after_a_disconnect() {
        let collector = Collector::start().await;
        let url = collector.endpoint().replace("http://", "http://user:password@");
        let proxy = FaultProxy::start(&url).await;
        let endpoint = format!("http://127.0.0.1:{}", proxy.port());
        let traces = Traces::start(&section(endpoint), identity()).unwrap().unwrap();
        export(&traces).await.unwrap();
        proxy.cut_all();
        // The library gives up a batch whose connection breaks while it is sent.
        while export(&traces).await.is_err() {}
        assert_eq!(proxy.connections(), 2);
        let spans = collector.spans();
        let spans: Vec<_> =
            spans.iter().map(|span| (span.service.as_str(), span.name.as_str())).collect();
        assert_eq!(spans, [("rockbot-test", "do work"); 2]);
        tokio::task::spawn_blocking(move || traces.shut_down()).await.unwrap();
    }

    #[tokio::test]
    async fn silent_collector_does_not_delay_shutdown() {
        let collector = Collector::start().await;
        let url = collector.endpoint().replace("http://", "http://user:password@");
        let proxy = FaultProxy::start(&url).await;
        proxy.stall();
        let endpoint = format!("http://127.0.0.1:{}", proxy.port());
        let traces = Traces::start(&section(endpoint), identity()).unwrap().unwrap();
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        async { drop(span()) }.with_subscriber(subscriber).await;
        let started = std::time::Instant::now();
        tokio::task::spawn_blocking(move || traces.shut_down()).await.unwrap();
        assert!(started.elapsed() < 5 * SHUTDOWN_TIMEOUT, "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn https_endpoint_is_accepted_over_both_transports() {
        use super::super::section::OtlpProtocol;
        for protocol in [OtlpProtocol::Grpc, OtlpProtocol::Http] {
            let section = TelemetrySection {
                otlp_protocol: Some(protocol),
                ..section("https://127.0.0.1:9".to_owned())
            };
            let traces = Traces::start(&section, identity()).unwrap().unwrap();
            tokio::task::spawn_blocking(move || traces.shut_down()).await.unwrap();
        }
    }
}
