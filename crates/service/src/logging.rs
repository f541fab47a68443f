//! Where log lines go: standard error, for people or as JSON.

use std::io::{self, IsTerminal};

use rockbot_contracts::trace;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    sections::{LogFormat, LogSection},
    telemetry::{complaints, traces::Traces},
};

/// Directives added to every filter. What the AMQP client has to say, the bus says once and better;
/// and it logs whole messages at `warn` when the broker
/// returns them, which hold what tools and models say. The MCP and WebSocket clients do the same with
/// what servers say and with headers.
const QUIET: [&str; 4] = ["lapin=off", "rmcp=error", "tungstenite=warn", "opentelemetry=off"];

/// A log filter that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("log.level {level:?} is not a filter such as `info` or `warn,rockbot_bus=debug`: {reason}")]
pub struct InvalidFilter {
    level: String,
    reason: String,
}

/// Reads a filter; `RUST_LOG` in the environment wins over the configuration.
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

/// Checks the section without changing anything.
///
/// # Errors
/// When the level is not a filter.
pub fn check(section: &LogSection) -> Result<(), InvalidFilter> {
    filter(&section.level).map(drop)
}

/// Starts to log, and to record `traces`. Later calls in the same process change nothing.
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
    let lines = match json {
        true => lines.json().with_span_list(false).with_filter(filter).boxed(),
        false => lines.with_ansi(terminal).with_target(false).with_filter(filter).boxed(),
    };
    let registry = tracing_subscriber::registry().with(lines);
    // It fails only when somebody has started before, as tests in one process do.
    if registry.with(traces.map(|_| complaints::layer())).try_init().is_ok()
        && let Some(traces) = traces
    {
        trace::install(traces.recorder());
    }
    Ok(())
}
