//! Arguments of `rockbot dlq`.

use clap::{Args, Subcommand};
use rockbot_monitor::letters::MAX_LETTERS;

/// `rockbot dlq`.
#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List work queues with their waiting messages and dead letters
    #[command(after_help = "Examples:
  rockbot dlq list
  rockbot dlq list tool.invoke user.message.writer --json")]
    List {
        /// Work queues [default: those of tools with fleet.pools, MCP servers, scripts and the configured
        /// agents]
        #[arg(value_name = "QUEUE")]
        queues: Vec<String>,
    },
    /// Show dead letters without removing them
    #[command(after_help = "Examples:
  rockbot dlq show tool.invoke
  rockbot dlq show tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f --body")]
    Show {
        /// Name of the work queue
        queue: String,
        /// Maximum number of dead letters to show, oldest first
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = letter_limit())]
        limit: u32,
        /// Show only the dead letter with this message id
        #[arg(long, value_name = "MESSAGE_ID", conflicts_with = "limit")]
        id: Option<String>,
        /// Show the message bodies
        #[arg(long)]
        body: bool,
    },
    /// Resend dead letters to their work queue
    ///
    /// Each is published as a new message with the same correlation id, the original time budget and the
    /// next attempt number. The dead letter is removed when the broker has confirmed the new message. The
    /// handler's journal prevents repeated runs: a finished call returns its recorded result, and a
    /// started call that is not idempotent fails with outcome_unknown.
    ///
    /// If the broker knows the users of the fleet, a dead letter is resent only if it is from the caller
    /// that it names; the others stay, and are reported.
    #[command(after_help = "Examples:
  rockbot dlq replay tool.invoke --dry-run
  rockbot dlq replay tool.invoke --limit 1
  rockbot dlq replay tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f")]
    Replay {
        /// Name of the work queue
        queue: String,
        #[command(flatten)]
        selection: LetterSelection,
        /// Maximum number of dead letters to resend, oldest first [default: all]
        #[arg(long, value_name = "N", conflicts_with = "ids", value_parser = letter_limit())]
        limit: Option<u32>,
        /// Resend dead letters of other senders too; they run in the name of the caller that they claim
        #[arg(long)]
        any_sender: bool,
    },
    /// Delete dead letters permanently
    #[command(after_help = "Examples:
  rockbot dlq purge tool.invoke
  rockbot dlq purge tool.invoke --id 018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f --yes")]
    Purge {
        /// Name of the work queue
        queue: String,
        #[command(flatten)]
        selection: LetterSelection,
        /// Delete without confirmation; required when standard input is not a terminal
        #[arg(long)]
        yes: bool,
    },
}

/// The selection of dead letters, and whether to change anything.
#[derive(Debug, Args)]
pub(crate) struct LetterSelection {
    /// Only the dead letter with this message id; repeatable
    #[arg(long = "id", value_name = "MESSAGE_ID")]
    pub(crate) ids: Vec<String>,
    /// Report what would be done without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Parses the number of dead letters to show or resend.
fn letter_limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_LETTERS))
}
