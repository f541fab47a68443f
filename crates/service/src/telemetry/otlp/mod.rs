//! Sends spans to a collector that speaks OTLP.
//!
//! The batches are those of OpenTelemetry's SDK. What is sent is written here, straight from what the
//! SDK keeps, since `opentelemetry-otlp` copies every text of a span into messages of its own first.

mod collector;
mod headers;
mod protobuf;
mod request;

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use metrics::counter;
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use tokio::runtime::Runtime;
use tracing::{info, warn};

use self::collector::Collector;
pub use self::{collector::UnusableEndpoint, headers::UnusableHeaders};
use super::section::OtlpProtocol;

/// Sends spans, counts those that are sent and those that are lost, and says when that begins.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Collector,
    resource: Resource,
    fails: AtomicBool,
    /// Of its own: what sends spans competes with no call, and works while the process leaves.
    runtime: Runtime,
}

impl Exporter {
    /// Prepares it; nothing is sent yet.
    pub(super) fn new(url: &str, protocol: OtlpProtocol) -> Result<Self, ExporterError> {
        let headers = headers::configured()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ExporterError::Runtime)?;
        let collector = {
            let _runtime = runtime.enter();
            Collector::new(url, protocol, headers)
        };
        let collector = match collector {
            Ok(collector) => collector,
            Err(problem) => {
                // A runtime that is only dropped must not be within another one.
                runtime.shutdown_background();
                return Err(problem.into());
            }
        };
        let resource = Resource::builder_empty().build();
        Ok(Self { collector, resource, fails: AtomicBool::new(false), runtime })
    }

    /// Counts `sent` and `lost` spans, and tells the first of many failures: a collector that is away
    /// is away for a while.
    fn tell(&self, sent: u64, lost: u64, problem: Option<&dyn std::fmt::Display>) {
        let failed_before = self.fails.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !failed_before => warn!(%problem, "spans can't be sent and are lost"),
            None if failed_before => info!("spans are sent again"),
            _ => {}
        }
        for (outcome, spans) in [("sent", sent), ("lost", lost)] {
            if spans > 0 {
                counter!("rockbot_telemetry_spans_total", "outcome" => outcome).increment(spans);
            }
        }
    }
}

impl SpanExporter for Exporter {
    /// Blocks, as the thread of the SDK that asks for it expects.
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let request = request::request(&self.resource, &batch);
        drop(batch);
        match self.runtime.block_on(self.collector.deliver(request.into())) {
            Ok(0) => self.tell(spans, 0, None),
            Ok(rejected) => {
                let lost = rejected.min(spans);
                let problem = format_args!("the collector rejected {lost} of {spans}");
                self.tell(spans - lost, lost, Some(&problem));
            }
            Err(problem) => {
                self.tell(0, spans, Some(&problem));
                return Err(OTelSdkError::InternalFailure(problem.to_string()));
            }
        }
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
    }
}

/// Why traces can't be sent from this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExporterError {
    /// The endpoint is none.
    #[error("telemetry.otlp_endpoint: {0}")]
    Endpoint(#[from] UnusableEndpoint),
    /// The environment has headers that can't be sent.
    #[error(transparent)]
    Headers(#[from] UnusableHeaders),
    /// The system refuses what it takes to wait for answers.
    #[error("spans can't be sent: {0}")]
    Runtime(#[source] io::Error),
}
