//! An exporter that says when spans get lost, once each time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use metrics::counter;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tracing::{info, warn};

/// Counts what is sent and what is lost.
#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    fails: AtomicBool,
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E) -> Self {
        Self { exporter, fails: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = self.exporter.export(batch).await;
        let failed_before = self.fails.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Ok(()) if failed_before => info!("spans are sent again"),
            // Only the first of many: a collector that is away is away for a while.
            Err(error) if !failed_before => warn!(%error, "spans can't be sent and are lost"),
            _ => {}
        }
        let outcome = if sent.is_ok() { "sent" } else { "lost" };
        counter!("rockbot_telemetry_spans_total", "outcome" => outcome).increment(spans);
        sent
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
