//! Recorded items of a conversation, read from its agent.

use std::time::Duration;

use rockbot_agent::AgentClient;
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, MessageId,
    conversation::{HistoryBody, HistoryItem},
};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::turns::Conversation;
use crate::api::{
    problem::Problem,
    schema::{UsageView, name_of},
};

/// Time limit of a request to an agent, below that of a request to the gateway.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Largest number of items in a page.
const PAGE_ITEMS: u32 = 500;

/// A recorded item of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryView {
    /// Number in the conversation; numbers grow, with gaps.
    pub(crate) number: u64,
    /// Time in Unix milliseconds, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_ms: Option<u64>,
    /// Content.
    #[serde(flatten)]
    pub(crate) body: HistoryBodyView,
}

/// Content of a recorded item. All texts are untrusted.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum HistoryBodyView {
    /// A message that started a turn.
    #[serde(rename_all = "camelCase")]
    Message {
        /// Its id, if it came over the bus.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
        /// Text.
        text: String,
    },
    /// A message that was added to a running turn.
    #[serde(rename_all = "camelCase")]
    Steered {
        /// Its id, if it came over the bus.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
        /// Text.
        text: String,
    },
    /// A person cancelled the turn.
    Cancelled {},
    /// A response of the model.
    #[serde(rename_all = "camelCase")]
    Model {
        /// Text; may be empty.
        text: String,
        /// The tool calls that it requested.
        calls: Vec<CallRequestView>,
    },
    /// The result of a tool call, as the model read it.
    #[serde(rename_all = "camelCase")]
    Result {
        /// The call.
        tool_call_id: String,
        /// The tool, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
        /// Text.
        text: String,
        /// Error code of a failed call.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Execution state of the tool, if recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        executed: Option<String>,
    },
    /// Approval of a call was requested.
    #[serde(rename_all = "camelCase")]
    ApprovalAsked {
        /// The call.
        tool_call_id: String,
        /// The tool, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
    },
    /// An approval request was closed.
    #[serde(rename_all = "camelCase")]
    Decided {
        /// The decision, or why there was none.
        decision: String,
    },
    /// The answer of a turn.
    #[serde(rename_all = "camelCase")]
    Answer {
        /// Text.
        text: String,
        /// Outcome of the turn.
        outcome: String,
        /// Usage, if recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Box<UsageView>>,
    },
    /// A summary that replaced older items in the model's context.
    #[serde(rename_all = "camelCase")]
    Summary {
        /// Text.
        text: String,
    },
    /// A person's feedback on an answer.
    #[serde(rename_all = "camelCase")]
    Feedback {
        /// The message whose answer was rated.
        message_id: String,
        /// `positive` or `negative`.
        rating: String,
        /// Comment; may be empty.
        comment: String,
    },
    /// Another process continued the turn.
    #[serde(rename_all = "camelCase")]
    Resumed {
        /// The process.
        on: String,
        /// Number of the process that runs the turn.
        attempt: u32,
    },
    /// A process stopped the turn between two steps, for another one to continue.
    #[serde(rename_all = "camelCase")]
    PutDown {
        /// The process.
        on: String,
    },
    /// An item that this gateway does not know.
    Other {},
}

/// A tool call in a response of the model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallRequestView {
    /// The call.
    tool_call_id: String,
    /// The tool.
    tool_name: String,
    /// The arguments as JSON.
    arguments: String,
}

impl From<HistoryItem> for HistoryView {
    fn from(item: HistoryItem) -> Self {
        let HistoryItem { number, at_ms, body } = item;
        Self { number, at_ms, body: body.into() }
    }
}

impl From<HistoryBody> for HistoryBodyView {
    fn from(body: HistoryBody) -> Self {
        let text_of = |id: Option<MessageId>| id.map(|id| id.to_string());
        match body {
            HistoryBody::Message { message_id, text } => {
                Self::Message { message_id: text_of(message_id), text }
            }
            HistoryBody::Steered { message_id, text } => {
                Self::Steered { message_id: text_of(message_id), text }
            }
            HistoryBody::Cancelled {} => Self::Cancelled {},
            HistoryBody::Model { text, calls } => {
                let calls = calls.into_iter().map(|call| CallRequestView {
                    tool_call_id: call.tool_call_id.to_string(),
                    tool_name: call.tool_name,
                    arguments: call.arguments,
                });
                Self::Model { text, calls: calls.collect() }
            }
            HistoryBody::Result { tool_call_id, tool_name, text, error, executed } => {
                Self::Result {
                    tool_call_id: tool_call_id.to_string(),
                    tool_name,
                    text,
                    error: error.map(|code| code.as_str().to_owned()),
                    executed: executed.map(|executed| executed.to_string()),
                }
            }
            HistoryBody::ApprovalAsked { tool_call_id, tool_name } => {
                Self::ApprovalAsked { tool_call_id: tool_call_id.to_string(), tool_name }
            }
            HistoryBody::Decided { decision } => Self::Decided { decision },
            HistoryBody::Answer { text, outcome, usage } => Self::Answer {
                text,
                outcome: name_of(&outcome),
                usage: usage.map(|usage| Box::new(usage.into())),
            },
            HistoryBody::Summary { text } => Self::Summary { text },
            HistoryBody::Feedback { message_id, rating, comment } => Self::Feedback {
                message_id: message_id.to_string(),
                rating: name_of(&rating),
                comment,
            },
            HistoryBody::Resumed { on, attempt } => Self::Resumed { on: on.to_string(), attempt },
            HistoryBody::PutDown { on } => Self::PutDown { on: on.to_string() },
            HistoryBody::Other => Self::Other {},
        }
    }
}

/// Returns a page of a conversation's history from an item on, and the number of the next page's first item.
/// The history of a conversation without a turn is empty.
pub(crate) async fn page(
    client: &AgentClient,
    conversation: &Conversation,
    from: u64,
) -> Result<(Vec<HistoryItem>, Option<u64>), Problem> {
    let session_id = conversation.session.clone();
    let request = ConversationRequest::History { session_id, from, limit: PAGE_ITEMS };
    match send(client, conversation, &request).await {
        Ok(ConversationResponse::History { items, next }) => Ok((items, next)),
        Ok(_) => Err(Problem::agent_silent()),
        // The agent has never had it.
        Err(problem) if problem.is_not_found() => Ok((Vec::new(), None)),
        Err(problem) => Err(problem),
    }
}

/// Returns the message of a conversation without an answer, as the agent has recorded it.
pub(crate) async fn open_message(
    client: &AgentClient,
    conversation: &Conversation,
) -> Result<Option<MessageId>, Problem> {
    let session_id = Some(conversation.session.clone());
    let request = ConversationRequest::Summary { session_id };
    match send(client, conversation, &request).await {
        Ok(ConversationResponse::Summary { conversation }) => Ok(conversation.open_message),
        Ok(_) => Ok(None),
        Err(problem) if problem.is_not_found() => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Sends a request about a conversation to its agent.
pub(crate) async fn send(
    client: &AgentClient,
    conversation: &Conversation,
    request: &ConversationRequest,
) -> Result<ConversationResponse, Problem> {
    let response = timeout(REQUEST_TIMEOUT, client.request(&conversation.agent, request)).await;
    Ok(response.map_err(|_| Problem::agent_silent())??)
}
