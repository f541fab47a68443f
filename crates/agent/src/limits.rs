//! Bounds on what an agent takes upon itself.

use std::time::Duration;

use crate::context::ContextBudget;

/// Bounds of one agent process. The defaults suit a process with a few hundred megabytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// Longest turn, tools and model included. Default 10 minutes.
    pub turn_timeout: Duration,
    /// Most conversations in memory. Default 1,000.
    pub max_sessions: usize,
    /// A conversation without a message for so long is forgotten. Default 30 minutes.
    pub session_idle: Duration,
    /// Most messages that wait in one conversation. Default 16.
    pub session_inbox: usize,
    /// Most messages of a conversation that the model is shown. Default 200. A turn that is
    /// running is kept whole, so it may go beyond.
    pub history_messages: usize,
    /// Most text of a conversation that the model is shown, in bytes. Default 1 MiB.
    pub history_bytes: usize,
    /// Longest message of a person, in bytes. Default 128 KiB.
    pub message_bytes: usize,
    /// Longest tool result that the model is shown, in bytes. Default 64 KiB.
    pub result_bytes: usize,
    /// Most tools that one request to the model has. Default 120: providers refuse more than 128.
    pub request_tools: usize,
    /// Most tools of MCP servers that a conversation has at hand because it looked for them; on top
    /// the oldest goes. Default 40.
    pub activated_tools: usize,
    /// What the model is told beside the conversation.
    pub context: ContextBudget,
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
            result_bytes: 64 * 1024,
            request_tools: 120,
            activated_tools: 40,
            context: ContextBudget::default(),
        }
    }
}
