//! Arguments of `rockbot tasks`.

use clap::Subcommand;
use rockbot_contracts::TaskId;

use super::sessions::AgentOption;

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List the work that your conversations delegated: sub-agents, and tasks at other agents
    #[command(after_help = "Examples:
  rockbot --bus amqp://… tasks list
  rockbot --bus amqp://… tasks list --agent researcher --json")]
    List {
        #[command(flatten)]
        of: AgentOption,
    },
    /// Show a sub-agent or a task, and its result
    #[command(after_help = "Examples:
  rockbot --bus amqp://… tasks show 3fa94c01d2be")]
    Show {
        /// Id of the sub-agent or task, as shown by `rockbot tasks list`
        #[arg(value_name = "TASK", value_parser = task_id)]
        task: TaskId,
        #[command(flatten)]
        of: AgentOption,
    },
    /// Cancel a running sub-agent or a task
    #[command(after_help = "Examples:
  rockbot --bus amqp://… tasks cancel 3fa94c01d2be

Exit codes: 0 cancelled, 1 it had ended, or its end is not confirmed yet")]
    Cancel {
        /// Id of the sub-agent or task, as shown by `rockbot tasks list`
        #[arg(value_name = "TASK", value_parser = task_id)]
        task: TaskId,
        #[command(flatten)]
        of: AgentOption,
    },
}

impl Tasks {
    /// Returns the agent that is meant, if it was given.
    pub(crate) fn agent(&self) -> Option<&String> {
        let (Self::List { of } | Self::Show { of, .. } | Self::Cancel { of, .. }) = self;
        of.agent.as_ref()
    }
}

pub(super) fn task_id(text: &str) -> Result<TaskId, String> {
    TaskId::new(text).map_err(|error| error.to_string())
}
