//! Limits of handed over work.

use std::time::Duration;

/// Limits of the work that an agent hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationOptions {
    /// Maximum number of running sub-agents of one conversation. Default 3.
    pub most_subagents: u64,
    /// Maximum number of sub-agents that run in this process, and of tasks of other agents after the same number of
    /// handovers; further ones wait. Default 16.
    pub most_tasks: usize,
    /// Time that results of one model response wait for each other. Default 5 min.
    pub batch_wait: Duration,
}

impl Default for DelegationOptions {
    fn default() -> Self {
        Self { most_subagents: 3, most_tasks: 16, batch_wait: Duration::from_secs(300) }
    }
}
