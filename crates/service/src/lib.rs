//! The process kit: configuration, logs, telemetry, health, signals and exit codes of every process.
//!
//! - [`config`]: layered configuration, with all problems reported at once;
//! - [`expand`] and [`watch`]: variables in configuration files, and files that change at run time;
//! - [`sections`]: sections shared by several processes;
//! - [`logging`] and [`telemetry`]: logs, traces and metrics;
//! - [`shutdown`]: termination signals as a cancellation token;
//! - [`health`] and [`admin`]: liveness, readiness and metrics over HTTP;
//! - `healthcheck`: a readiness probe for containers;
//! - [`tls`]: the TLS stack;
//! - [`connections`]: a bounded HTTP listener;
//! - [`process`]: the main function of a service;
//! - [`exit`]: the exit codes.

pub mod admin;
pub mod config;
pub mod connections;
pub mod exit;
pub mod expand;
pub mod health;
mod healthcheck;
pub mod logging;
pub mod process;
pub mod sections;
mod serve_error;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watch;

pub use admin::AdminSection;
pub use config::{ConfigProblems, Configuration};
pub use health::Health;
pub use process::Process;
pub use sections::{LogFormat, LogSection, Profile, ServiceSection};
pub use serve_error::ServeError;
pub use shutdown::{Interrupt, Interrupts, Shutdown};
pub use telemetry::{Metrics, TelemetrySection};
