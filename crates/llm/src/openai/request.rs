//! The body of `POST /chat/completions`.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    chat::{ChatMessage, ChatRequest, ToolCallRequest, ToolChoice, ToolDefinition},
    readable_arguments::readable_arguments,
};

use super::{OpenAiSettings, content::UserContent};

#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    #[serde(serialize_with = "serialize_arguments")]
    arguments: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        request: &'a ChatRequest,
        settings: &'a OpenAiSettings,
        is_openai: bool,
    ) -> Self {
        // OpenAI's newer models reject `max_tokens`; most other servers support nothing else.
        let limit = request.max_tokens.or(settings.max_tokens);
        let (max_tokens, max_completion_tokens) =
            if is_openai { (None, limit) } else { (limit, None) };
        let has_tools = !request.tools.is_empty();
        Self {
            model: request.model.as_deref().or(settings.model.as_deref()),
            messages: wire_messages(&request.messages),
            tools: has_tools.then(|| request.tools.iter().map(Tool::from).collect()),
            tool_choice: has_tools.then_some(match request.tool_choice {
                ToolChoice::Auto => "auto",
                ToolChoice::None => "none",
                ToolChoice::Required => "required",
            }),
            parallel_tool_calls: has_tools.then_some(true),
            max_tokens,
            max_completion_tokens,
            temperature: request.temperature.or(settings.temperature),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
        }
    }
}

/// Converts messages. Media joins the user message before it, or gets a user message of its own.
fn wire_messages(messages: &[ChatMessage]) -> Vec<Message<'_>> {
    let mut wire: Vec<Message<'_>> = Vec::with_capacity(messages.len());
    for message in messages {
        let next = match message {
            ChatMessage::System(content) => Message::System { content },
            ChatMessage::User(text) => Message::User { content: UserContent::Text(text) },
            ChatMessage::Assistant { text, tool_calls } => Message::Assistant {
                content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
                tool_calls: tool_calls.iter().map(Call::from).collect(),
            },
            ChatMessage::Tool { tool_call_id, content } => Message::Tool { tool_call_id, content },
            ChatMessage::Media(media) if media.is_empty() => continue,
            ChatMessage::Media(media) => {
                if let Some(Message::User { content }) = wire.last_mut() {
                    content.add_media(media);
                    continue;
                }
                Message::User { content: UserContent::from_results(media) }
            }
        };
        wire.push(next);
    }
    wire
}

impl<'a> From<&'a ToolCallRequest> for Call<'a> {
    fn from(call: &'a ToolCallRequest) -> Self {
        let function = CalledFunction { name: &call.name, arguments: &call.arguments };
        Self { id: &call.id, r#type: "function", function }
    }
}

impl<'a> From<&'a ToolDefinition> for Tool<'a> {
    fn from(tool: &'a ToolDefinition) -> Self {
        let ToolDefinition { name, description, parameters } = tool;
        Self { r#type: "function", function: Function { name, description, parameters } }
    }
}

fn serialize_arguments<S: Serializer>(arguments: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&readable_arguments(arguments))
}
