//! Arguments of `rockbot agents`.

use std::time::Duration;

use clap::{Subcommand, ValueHint};
use rockbot_contracts::{
    AgentName, TaskId,
    period::{InvalidPeriod, Period},
};

use super::tasks::task_id;

#[derive(Debug, Subcommand)]
pub(crate) enum Agents {
    /// List the agents, as without a subcommand
    List,
    /// Show the skills that an agent announces to others
    #[command(after_help = "Examples:
  rockbot --bus amqp://… agents show researcher

Exit codes: 0 shown, 1 the agent announces nothing: it does not run, or runs and is not exposed")]
    Show {
        /// Name of the agent
        #[arg(value_name = "AGENT", value_parser = agent_name)]
        agent: AgentName,
    },
    /// Hand a task to an agent, as other agents do, and wait for its result
    ///
    /// Ctrl-C cancels the task. A question of the agent ends the command; the answer is a further `ask` with --task.
    #[command(after_help = "Examples:
  rockbot --bus amqp://… agents ask researcher Compare the three proposals
  rockbot --bus amqp://… agents ask reporter --skill write-report --timeout 30m Report on Q3
  rockbot --bus amqp://… agents ask reporter --task 3fa94c01d2be Only Europe

Exit codes: 0 completed, 1 refused, failed or cancelled, or the agent asks a question, 69 no process serves
the tasks of the agent, 75 timed out")]
    Ask {
        /// Name of the agent
        #[arg(value_name = "AGENT", value_parser = agent_name)]
        agent: AgentName,
        /// The task
        #[arg(value_name = "TEXT", required = true, value_hint = ValueHint::Other)]
        text: Vec<String>,
        /// Id of the skill, as shown by `rockbot agents show`
        #[arg(long, value_name = "SKILL", default_value = "ask")]
        skill: String,
        /// Time limit, at most 2h
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time_limit)]
        timeout: Duration,
        /// Answer the question of this task
        #[arg(long, value_name = "TASK", value_parser = task_id)]
        task: Option<TaskId>,
    },
}

pub(super) fn agent_name(text: &str) -> Result<AgentName, String> {
    AgentName::new(text).map_err(|error| error.to_string())
}

fn time_limit(text: &str) -> Result<Duration, String> {
    let period: Period = text.parse().map_err(|error: InvalidPeriod| error.to_string())?;
    let time = period.duration().unwrap_or(Duration::MAX);
    let most = Duration::from_secs(2 * 3600);
    let fits = (Duration::from_secs(1)..=most).contains(&time);
    fits.then_some(time).ok_or_else(|| "must be 1s to 2h".to_owned())
}
