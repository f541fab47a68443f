//! Log lines: to standard error, for people or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    sections::{LogFormat, LogSection},
    telemetry::traces::Traces,
};

/// Directives added to every filter. The bus logs what the AMQP client reports, and the client logs
/// whole messages at `warn` when the broker returns them, with text of tools and models. The MCP and
/// WebSocket clients do the same with headers and text of servers, and the workers of MCP connections log
/// failures that are reported to the caller. Spans of traces are exported and
/// are no context for log lines.
const QUIET: [&str; 6] = [
    "lapin=off",
    "rmcp=error",
    "rmcp::transport::worker=off",
    "tungstenite=warn",
    "opentelemetry=off",
    "rockbot::trace=off",
];

/// An invalid log filter.
#[derive(Debug, thiserror::Error)]
#[error("log.level {level:?} is invalid: {reason}; use `info` or `warn,rockbot_bus=debug`")]
pub struct InvalidFilter {
    level: String,
    reason: String,
}

/// Parses a filter. `RUST_LOG` in the environment takes precedence over the configuration.
fn filter(level: &str) -> Result<EnvFilter, InvalidFilter> {
    let level = std::env::var("RUST_LOG").unwrap_or_else(|_| level.to_owned());
    let invalid = |reason: String| InvalidFilter { level: level.clone(), reason };
    let mut filter = EnvFilter::try_new(&level).map_err(|error| invalid(error.to_string()))?;
    for directive in QUIET {
        if let Ok(directive) = directive.parse() {
            filter = filter.add_directive(directive);
        }
    }
    Ok(filter)
}

/// Validates the section without changing anything.
///
/// # Errors
/// When the level is not a filter.
pub fn validate(section: &LogSection) -> Result<(), InvalidFilter> {
    filter(&section.level).map(drop)
}

/// Starts logging and the export of `traces`. Later calls in the same process change nothing.
///
/// # Errors
/// When the level is not a filter.
pub fn start(section: &LogSection, traces: Option<&Traces>) -> Result<(), InvalidFilter> {
    let filter = filter(&section.level)?;
    let terminal = io::stderr().is_terminal();
    let json = match section.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = if json {
        lines.json().with_span_list(false).with_filter(filter).boxed()
    } else {
        lines.with_ansi(terminal).with_target(false).with_filter(filter).boxed()
    };
    let registry = tracing_subscriber::registry().with(lines).with(traces.map(Traces::layer));
    // Initialization fails only after an earlier start, as in tests that share a process.
    if registry.try_init().is_ok()
        && let Some(traces) = traces
    {
        traces.install();
    }
    Ok(())
}
