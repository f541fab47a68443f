//! Limits of an agent.

use std::time::Duration;

use rockbot_tools::BudgetLimits;

use crate::context::ContextBudget;

/// Limits of one agent process. The defaults suit a process with a few hundred megabytes of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// Time limit of a turn, including tools and model. Default 10 minutes.
    pub turn_timeout: Duration,
    /// Maximum number of conversations in memory. Default 1,000. At the limit, a new conversation replaces
    /// a stored one that is idle.
    pub max_sessions: usize,
    /// An idle conversation is dropped after this time. Default 30 minutes.
    pub session_idle: Duration,
    /// Maximum number of queued messages of one conversation. Default 16.
    pub session_inbox: usize,
    /// Maximum number of messages in the history of a conversation. Default 200. The current exchange is
    /// kept whole and may exceed it.
    pub history_messages: usize,
    /// Maximum text in the history of a conversation, in bytes. Default 1 MiB.
    pub history_bytes: usize,
    /// Longest user message, in bytes. Default 128 KiB.
    pub message_bytes: usize,
    /// Longest tool result, in bytes. A longer one is truncated, or stored if `layers.outputs` of
    /// [`AgentParts`](crate::AgentParts) is set. Default 3 MiB.
    pub result_bytes: usize,
    /// Maximum number of tools in one model request. Default 120; providers reject more than 128.
    pub request_tools: usize,
    /// Maximum number of MCP tools that a conversation has activated by search; the oldest are removed
    /// first. Default 40.
    pub activated_tools: usize,
    /// Budgets of the additional context.
    pub context: ContextBudget,
    /// The most that is spent on one message of a user, by its turn and all turns that it starts.
    pub budget: BudgetLimits,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            turn_timeout: Duration::from_secs(10 * 60),
            max_sessions: 1000,
            session_idle: Duration::from_secs(30 * 60),
            session_inbox: 16,
            history_messages: 200,
            history_bytes: 1024 * 1024,
            message_bytes: 128 * 1024,
            result_bytes: 3 * 1024 * 1024,
            request_tools: 120,
            activated_tools: 40,
            context: ContextBudget::default(),
            budget: BudgetLimits::default(),
        }
    }
}
