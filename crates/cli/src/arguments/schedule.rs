//! Arguments of `rockbot schedule`.

use clap::{Args, Subcommand};

use super::sessions::AgentOption;

#[derive(Debug, Subcommand)]
pub(crate) enum Schedule {
    /// List scheduled tasks, the next one first
    #[command(after_help = "Examples:
  rockbot schedule list
  rockbot --bus amqp://… schedule list --agent researcher --json")]
    List {
        #[command(flatten)]
        of: AgentOption,
    },
    /// Show a task: its instructions, its next fire, its last answer
    #[command(after_help = "Examples:
  rockbot schedule show report")]
    Show {
        #[command(flatten)]
        task: TaskArgument,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Create a task, or replace the one with its name
    #[command(after_help = "Examples:
  rockbot schedule add report '0 9 * * MON-FRI' 'Summarize the overnight tickets'
  rockbot schedule add reminder '30 14 25 11 *' 'Remind me of the review' --once
  rockbot schedule add report '@daily' 'Summarize the day' --timezone Europe/Berlin

Exit codes: 0 scheduled, 64 the task is not valid")]
    Add {
        #[command(flatten)]
        task: TaskArgument,
        /// Cron expression: minute hour day-of-month month day-of-week, or 6 fields with seconds first
        #[arg(value_name = "CRON")]
        cron: String,
        /// Instructions for the agent at each fire
        #[arg(value_name = "DESCRIPTION")]
        description: String,
        /// Remove the task after its first fire
        #[arg(long)]
        once: bool,
        /// IANA time zone of the expression [default: the zone of the agent]
        #[arg(long, value_name = "ZONE")]
        timezone: Option<String>,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Remove a task; a running turn of it continues
    #[command(after_help = "Examples:
  rockbot schedule cancel report

Exit codes: 0 removed, 1 there is no such task")]
    Cancel {
        #[command(flatten)]
        task: TaskArgument,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Let a task fire now, besides its schedule
    ///
    /// An embedded agent fires it while `rockbot up` or an interactive `rockbot chat` runs.
    #[command(after_help = "Examples:
  rockbot schedule run-now report

Exit codes: 0 due now, 1 there is no such task, 64 its turn is running")]
    RunNow {
        #[command(flatten)]
        task: TaskArgument,
        #[command(flatten)]
        of: AgentOption,
    },
}

impl Schedule {
    /// Returns the agent whose tasks are meant, if it was given.
    pub(crate) fn agent(&self) -> Option<&String> {
        let (Self::List { of }
        | Self::Show { of, .. }
        | Self::Add { of, .. }
        | Self::Cancel { of, .. }
        | Self::RunNow { of, .. }) = self;
        of.agent.as_ref()
    }
}

/// One task.
#[derive(Debug, Args)]
pub(crate) struct TaskArgument {
    /// Name of the task; case is ignored
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
