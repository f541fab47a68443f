//! The chat-model port: a request with messages and tools in, a stream of events out.

use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::Value;

use crate::{error::ChatError, media::Media};

/// A model that continues a conversation with streamed messages.
///
/// # Cancellation
/// Dropping the future or the stream closes the connection to the model.
pub trait ChatModel: Send + Sync + 'static {
    /// Returns the model's name, for logs and display.
    fn name(&self) -> &str;

    /// Requests the next assistant message.
    ///
    /// The stream ends after [`ChatEvent::Finished`], or after its first error.
    ///
    /// # Errors
    /// Returned here when no answer started, otherwise as an item of the stream. An implementation may
    /// retry a request that failed before the first event, never one that failed later.
    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>>;
}

/// The events of one answer.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, ChatError>>;

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatRequest {
    /// The model; the configured one when absent.
    pub model: Option<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// A restriction on tool calls. Ignored without tools.
    pub tool_choice: ToolChoice,
    /// The limit for the answer, in tokens; the configured value when absent.
    pub max_tokens: Option<u32>,
    /// The sampling temperature, from 0 (nearly deterministic) to 2; the configured value when absent.
    pub temperature: Option<f64>,
    /// The conversation's key. Never sent to a server; the scripted model derives call ids from it.
    pub session: String,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatMessage {
    /// System instructions.
    System(String),
    /// A message from the user.
    User(String),
    /// A message from the model.
    Assistant {
        /// The text; may be empty when there are tool calls.
        text: String,
        /// The tool calls. Each is followed by one [`ChatMessage::Tool`] before the next user message.
        tool_calls: Vec<ToolCallRequest>,
    },
    /// The result of a call.
    Tool {
        /// The id of the call, as the model gave it.
        tool_call_id: String,
        /// The content that the model reads.
        content: String,
    },
    /// Images and audio that belong to the user message or the tool result before it. Use an
    /// [`AdaptedModel`](crate::AdaptedModel) where a model may not read them.
    Media(Vec<Media>),
}

/// A tool call requested by a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallRequest {
    /// Pairs the call with its result; unique within the message.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON as the model wrote it; it may be invalid or violate the schema.
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name in calls.
    pub name: String,
    /// The purpose of the tool and when to use it.
    pub description: String,
    /// A JSON Schema of an object.
    pub parameters: Value,
}

/// Restricts whether a model calls tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls: the model must reply with text.
    None,
    /// At least one call.
    Required,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatEvent {
    /// More of the text.
    Text(String),
    /// More of a tool call. The pieces of parallel calls may be interleaved.
    ToolCallDelta {
        /// The index of the call in the message; some servers omit it.
        index: Option<u32>,
        /// The call's id: mostly in its first piece only.
        id: Option<String>,
        /// The tool's name: mostly in the call's first piece only.
        name: Option<String>,
        /// More of the arguments; may be empty.
        arguments: String,
    },
    /// Token usage; most servers send it once, and the last one counts.
    Usage(Usage),
    /// The answer is complete. Always the last event.
    Finished(FinishReason),
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The answer reached its length limit: text or arguments may be cut off.
    Length,
    /// It requests tool calls.
    ToolCalls,
    /// The provider withheld the rest.
    ContentFilter,
    /// Another reason, as the server names it.
    Other(String),
}

/// Token usage of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// The cost in millionths of a US dollar, if the server reports it.
    pub cost_micros: Option<u64>,
}
