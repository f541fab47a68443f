//! What a process tells of its work: log lines, traces and metrics.
//!
//! - [`section`]: `[telemetry]`, where traces go;
//! - [`traces`]: spans as OpenTelemetry has them, sent over OTLP;
//! - [`metrics`]: what `/metrics` answers.
//!
//! None of them makes a call wait: what can't be sent is dropped.

pub mod metrics;
pub mod section;
pub mod traces;
mod watched;

pub use metrics::Metrics;
pub use section::TelemetrySection;
