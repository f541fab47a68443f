//! The port: a request of messages and tools goes in, a stream of events comes out.

use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::Value;

use crate::error::ChatError;

/// A model that answers a conversation, piece by piece.
///
/// # Cancellation
/// Drop the future or the stream: the connection to the model is closed and nothing runs on.
pub trait ChatModel: Send + Sync + 'static {
    /// The model's name, for logs and for people.
    fn name(&self) -> &str;

    /// Asks for the next assistant message.
    ///
    /// The stream ends after [`ChatEvent::Finished`], or after its first error.
    ///
    /// # Errors
    /// Here when no answer began, else as an item of the stream. An implementation may repeat a
    /// request that failed before the first event, never one that failed later.
    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>>;
}

/// The events of one answer.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, ChatError>>;

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatRequest {
    /// Another model than the configured one.
    pub model: Option<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether it may, must or must not call. Means nothing without tools.
    pub tool_choice: ToolChoice,
    /// The longest answer, in tokens; the configured value when absent.
    pub max_tokens: Option<u32>,
    /// From 0 (the same answer each time) to 2; the configured value when absent.
    pub temperature: Option<f64>,
    /// The conversation's key. Never sent to a server; the scripted model derives call ids from it.
    pub session: String,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatMessage {
    /// Instructions of the system.
    System(String),
    /// What a person says.
    User(String),
    /// What the model said.
    Assistant {
        /// Its words; may be empty beside tool calls.
        text: String,
        /// Its calls. Each is answered by one [`ChatMessage::Tool`] before the next user message.
        tool_calls: Vec<ToolCallRequest>,
    },
    /// The result of a call.
    Tool {
        /// The id of the call, as the model gave it.
        tool_call_id: String,
        /// What the model reads.
        content: String,
    },
}

/// A call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallRequest {
    /// Pairs the call with its result; unique within the message.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON as the model wrote it: perhaps not valid, perhaps not what the schema asks for.
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name to call it by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON Schema of an object.
    pub parameters: Value,
}

/// Whether a model may call tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call: the model must answer in words.
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
        /// Which call of the message; some servers never say.
        index: Option<u32>,
        /// The call's id: mostly in its first piece only.
        id: Option<String>,
        /// The tool's name: mostly in the call's first piece only.
        name: Option<String>,
        /// More of the arguments; may be empty.
        arguments: String,
    },
    /// What the answer cost; at most once for most servers, the last one counts.
    Usage(Usage),
    /// The answer is complete. Always the last event.
    Finished(FinishReason),
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// It had said everything.
    Stop,
    /// The answer reached its longest length: text or arguments may be cut.
    Length,
    /// It wants tools to run.
    ToolCalls,
    /// The provider held back the rest.
    ContentFilter,
    /// Another reason, in the server's word.
    Other(String),
}

/// The tokens an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
    /// What it cost in millionths of a US dollar, where the server tells.
    pub cost_micros: Option<u64>,
}
