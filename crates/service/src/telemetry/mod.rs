//! What a process tells of its work: log lines, traces and metrics.
//!
//! - [`section`]: `[telemetry]`, where traces go;
//! - [`traces`]: what is done, as spans that are sent over OTLP;
//! - [`metrics`]: what `/metrics` answers.
//!
//! None of them makes a call wait: what can't be sent is dropped.

pub(crate) mod complaints;
pub mod metrics;
mod otlp;
pub mod section;
mod spans;
pub mod traces;

pub use metrics::Metrics;
pub use section::TelemetrySection;
