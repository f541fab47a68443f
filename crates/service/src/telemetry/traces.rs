//! Traces, sent over OTLP.

use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue, trace::TracerProvider};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use rockbot_contracts::trace::Recorder;

pub use super::otlp::{SenderError, UnusableEndpoint, UnusableHeaders};
use super::{otlp::Sender, section::TelemetrySection, spans::Spans};
use crate::process::install_tls_provider;

/// Which instrumentation makes the spans.
const SCOPE: &str = "rockbot";
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
    /// Starts to send where the section says; `None` when it says nowhere.
    ///
    /// # Errors
    /// When the endpoint can't be used, or the headers that the environment asks for. An endpoint that
    /// does not answer can.
    pub fn start(
        section: &TelemetrySection,
        identity: Identity<'_>,
    ) -> Result<Option<Self>, SenderError> {
        let Some(url) = section.url() else { return Ok(None) };
        install_tls_provider();
        let root = Sampler::TraceIdRatioBased(section.sample_ratio);
        let resource = Resource::builder()
            .with_service_name(identity.name)
            .with_attributes([
                KeyValue::new("service.version", identity.version),
                KeyValue::new("service.instance.id", identity.instance.to_owned()),
                KeyValue::new("service.namespace", section.service_namespace.clone()),
            ])
            .build();
        let scope = InstrumentationScope::builder(SCOPE).build();
        let sender = Sender::start(&url, section.otlp_protocol, &resource, &scope)?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(sender)
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_resource(resource)
            .build();
        Ok(Some(Self { provider, content: section.content }))
    }

    /// What records the spans of the house.
    pub(crate) fn recorder(&self) -> impl Recorder + 'static {
        Spans { tracer: self.provider.tracer(SCOPE), content: self.content }
    }

    /// Sends what waits, for 1 s at most, and ends. Blocks.
    pub fn shut_down(&self) {
        // What could not be sent by now is lost, and there is nobody left to tell.
        let _ = self.provider.shutdown_with_timeout(LAST_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span, Tracer};
    use opentelemetry_sdk::error::OTelSdkResult;
    use rockbot_testkit::{collector::Collector, proxy::FaultProxy};

    use super::*;

    async fn tell(traces: &Traces, name: &'static str) -> OTelSdkResult {
        traces.provider.tracer("test").start(name).end();
        let provider = traces.provider.clone();
        tokio::task::spawn_blocking(move || provider.force_flush()).await.unwrap()
    }

    #[tokio::test]
    async fn spans_of_a_process_arrive_under_its_name_and_over_a_connection_that_was_cut() {
        let collector = Collector::start().await;
        let url = collector.endpoint().replace("http://", "http://nobody:nothing@");
        let proxy = FaultProxy::start(&url).await;
        let section = TelemetrySection {
            otlp_endpoint: Some(format!("http://127.0.0.1:{}", proxy.port())),
            ..TelemetrySection::default()
        };
        let identity = Identity { name: "rockbot-test", version: "1", instance: "one" };
        let traces = Traces::start(&section, identity).unwrap().unwrap();
        tell(&traces, "first").await.unwrap();
        proxy.cut_all();
        tell(&traces, "second").await.unwrap();
        assert_eq!(proxy.connections(), 2);
        let spans = collector.spans();
        let told: Vec<_> =
            spans.iter().map(|span| (span.service.as_str(), span.name.as_str())).collect();
        let expected = ["first", "second"].map(|name| ("rockbot-test", name));
        assert_eq!(told, expected);
        tokio::task::spawn_blocking(move || traces.shut_down()).await.unwrap();
    }
}
