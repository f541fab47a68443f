//! What every process does alike: read its configuration, log, notice signals, and leave with an
//! exit code that says why.
//!
//! - [`config`]: layers of configuration, with all problems reported at once;
//! - [`sections`]: the sections that several processes share;
//! - [`logging`] and [`telemetry`]: where log lines, traces and metrics go;
//! - [`shutdown`]: SIGTERM and Ctrl-C as a token;
//! - [`health`] and [`admin`]: whether it lives and is ready, over HTTP;
//! - `healthcheck`: the same question from a container's own check;
//! - [`tls`]: the TLS stack;
//! - [`process`]: a main function in one call;
//! - [`exit`]: the exit codes.

pub mod admin;
pub mod config;
pub mod connections;
pub mod exit;
pub mod health;
mod healthcheck;
pub mod logging;
pub mod process;
pub mod sections;
pub mod shutdown;
pub mod telemetry;
pub mod tls;

pub use admin::AdminSection;
pub use config::{ConfigProblems, Configuration};
pub use health::Health;
pub use process::{Process, ServeError};
pub use sections::{BusSection, LogFormat, LogSection, Profile, ServiceSection, TlsSection};
pub use shutdown::{Interrupt, Shutdown, interrupted};
pub use telemetry::{Metrics, TelemetrySection};
