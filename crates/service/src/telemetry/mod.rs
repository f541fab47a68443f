//! Telemetry of a process: traces and metrics.
//!
//! - [`section`]: `[telemetry]`, the configuration of traces;
//! - [`traces`]: spans, exported over OTLP;
//! - [`metrics`]: the response of `/metrics`;
//! - [`catalog`]: the metrics in that response.
//!
//! Telemetry never delays a call: spans that cannot be exported are dropped.

pub mod catalog;
mod exporter;
mod headers;
pub mod metrics;
pub mod section;
pub mod traces;

pub use metrics::Metrics;
pub use section::TelemetrySection;
