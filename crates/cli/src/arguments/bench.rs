//! Arguments of `rockbot bench`.

use clap::Args;

/// `rockbot bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Number of messages or calls
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) calls: u32,
    /// Maximum number of concurrent ones
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(crate) concurrency: u16,
    /// Call this read-only tool, instead of sending messages to this process
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Time limit of each message or call, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) timeout: u64,
    /// Arguments of the tool: KEY=VALUE by its schema, or one JSON object, @FILE, or - for standard input
    #[arg(value_name = "ARGUMENTS", requires = "tool")]
    pub(crate) arguments: Vec<String>,
}
