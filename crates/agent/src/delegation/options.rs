//! Limits of delegated work.

use std::time::Duration;

/// Limits of the work that an agent delegates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationOptions {
    /// Maximum number of running sub-agents of one conversation. Default 3.
    pub max_subagents: u64,
    /// Maximum number of sub-agents that run in this process, and of tasks of other agents after the same number of
    /// delegations; further ones wait. Default 16.
    pub max_tasks: usize,
    /// Time that results of one model response wait for each other. Default 5 min.
    pub batch_wait: Duration,
}

impl Default for DelegationOptions {
    fn default() -> Self {
        Self { max_subagents: 3, max_tasks: 16, batch_wait: Duration::from_secs(300) }
    }
}
