//! Low-cardinality labels of messages and queues for metrics and span names. Instance ids or external
//! text would create a new time series each.

use crate::{
    agent_card::{AgentCard, DiscoveryRefresh},
    agent_task::{
        AgentTaskCancelRequest, AgentTaskError, AgentTaskRequest, AgentTaskResult,
        AgentTaskStatusUpdate,
    },
    approval::ApprovalAnswer,
    catalog::{ToolCatalog, ToolCatalogRefresh},
    conversation::{ConversationRequest, ConversationResponse, UserFeedback},
    forward::{ForwardReceipt, ForwardedMessage},
    input::InputAnswer,
    mcp::{
        McpInputAnswer, McpInputAnswered, McpInputAsked, McpManageError, McpMetadataRefreshRequest,
        McpRegisterServerRequest, McpResourcesChanged, McpServerDetails, McpServerDetailsRequest,
        McpServerRegistered, McpServerUnregistered, McpServersIndexed, McpUnregisterServerRequest,
    },
    message::Message,
    schedule::{ScheduleRequest, ScheduleResponse, ScheduledEnded},
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
    tool::{ToolCancel, ToolError, ToolInvokeRequest, ToolInvokeResponse, ToolProgress},
    user::{AgentReply, UserMessage},
};

/// Label of unknown names and types.
pub const OTHER: &str = "other";

/// Prefixes of routing keys and bare queue names. A longer prefix precedes its own prefixes.
const FAMILIES: [&str; 28] = [
    "tool.invoke.pool",
    "tool.invoke.mcp.at",
    "tool.invoke.mcp",
    "tool.invoke",
    "tool.result",
    "tool.progress",
    "tool.cancel",
    "tool.catalog.announce",
    "tool.catalog.refresh",
    "tool.meta.mcp.refresh",
    "tool.meta.mcp",
    "mcp.manage.response",
    "mcp.manage.at",
    "mcp.manage",
    "script.invoke",
    "script.result",
    "user.message",
    "user.response",
    "user.approval",
    "user.input",
    "user.conversation",
    "user.notice",
    "doctor.ping",
    "agent.task.cancel",
    "agent.task",
    "agent.response",
    "discovery.announce",
    "discovery.refresh",
];

const TYPES: [&str; 41] = [
    ToolInvokeRequest::TYPE,
    ToolInvokeResponse::TYPE,
    ToolError::TYPE,
    ToolProgress::TYPE,
    ToolCancel::TYPE,
    ToolCatalog::TYPE,
    ToolCatalogRefresh::TYPE,
    McpServersIndexed::TYPE,
    McpMetadataRefreshRequest::TYPE,
    McpServerDetailsRequest::TYPE,
    McpServerDetails::TYPE,
    McpRegisterServerRequest::TYPE,
    McpServerRegistered::TYPE,
    McpUnregisterServerRequest::TYPE,
    McpServerUnregistered::TYPE,
    McpManageError::TYPE,
    McpResourcesChanged::TYPE,
    McpInputAsked::TYPE,
    McpInputAnswer::TYPE,
    McpInputAnswered::TYPE,
    ScriptInvokeRequest::TYPE,
    ScriptInvokeResponse::TYPE,
    UserMessage::TYPE,
    AgentReply::TYPE,
    ApprovalAnswer::TYPE,
    InputAnswer::TYPE,
    ConversationRequest::TYPE,
    ConversationResponse::TYPE,
    UserFeedback::TYPE,
    ScheduleRequest::TYPE,
    ScheduleResponse::TYPE,
    ScheduledEnded::TYPE,
    ForwardedMessage::TYPE,
    ForwardReceipt::TYPE,
    AgentTaskRequest::TYPE,
    AgentTaskCancelRequest::TYPE,
    AgentTaskStatusUpdate::TYPE,
    AgentTaskResult::TYPE,
    AgentTaskError::TYPE,
    AgentCard::TYPE,
    DiscoveryRefresh::TYPE,
];

/// Returns the prefix of a routing key or bare queue name, such as `tool.result` for
/// `tool.result.assistant.7`; [`OTHER`] for foreign names.
#[must_use]
pub fn family_of(name: &str) -> &'static str {
    let is_prefix = |family: &&&str| {
        let rest = name.strip_prefix(**family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    FAMILIES.iter().find(is_prefix).copied().unwrap_or(OTHER)
}

/// Returns the message type if it is known, otherwise [`OTHER`].
#[must_use]
pub fn type_of(message_type: &str) -> &'static str {
    TYPES.iter().find(|known| **known == message_type).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology;

    #[track_caller]
    fn check(name: &str, family: &str) {
        assert_eq!(family_of(name), family, "{name}");
    }

    #[test]
    fn family_ends_before_the_instance() {
        check("tool.invoke", "tool.invoke");
        check("tool.invoke.mcp", "tool.invoke.mcp");
        check("tool.invoke.quarantine", "tool.invoke");
        check("tool.invoke.pool.web.quarantine", "tool.invoke.pool");
        check("tool.invoke.mcp.at.b-1", "tool.invoke.mcp.at");
        check("tool.result.assistant.01", "tool.result");
        check(topology::mcp_manage().as_str(), "mcp.manage");
        check("mcp.manage.response.a.1", "mcp.manage.response");
        check("tool.invoked", OTHER);
        check("user.message.assistant", "user.message");
        check("user.message.assistant.at.agent-0", "user.message");
        check("", OTHER);
    }

    #[test]
    fn foreign_message_type_is_other() {
        assert_eq!(type_of("ToolError"), "ToolError");
        assert_eq!(type_of("ApprovalAnswer"), "ApprovalAnswer");
        assert_eq!(type_of("SELECT 1"), OTHER);
    }
}
