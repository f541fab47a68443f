//! Requests of a response.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::super::{
    content::{Content, ImageUrl, InputAudio, Part},
    conversation::{MAX_EARLIER_BYTES, MAX_TEXT_BYTES, has_space_for_earlier},
    error::ApiError,
    request::{ChatRequest, EarlierMessage, LastMessage},
};

/// Maximum number of items of the input.
const MAX_ITEMS: usize = 10_000;
/// Longest instructions, in bytes.
const MAX_INSTRUCTIONS_BYTES: usize = 32 * 1024;
/// Maximum number of entries of the metadata.
const MAX_METADATA: usize = 16;
/// Longest name and value of an entry of the metadata, in characters.
const MAX_METADATA_NAME: usize = 64;
const MAX_METADATA_VALUE: usize = 512;
/// Longest previous response id, in bytes.
const MAX_ID_BYTES: usize = 255;

/// The request as sent. Parameters of models that an agent decides itself are ignored.
#[derive(Debug, Deserialize)]
struct Wire {
    model: String,
    input: Input,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    text: Option<TextOptions>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    conversation: Option<IgnoredAny>,
    #[serde(default)]
    prompt: Option<IgnoredAny>,
    #[serde(default)]
    moderation: Option<IgnoredAny>,
    #[serde(default)]
    max_tool_calls: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// An item of the input: a message, unless it has another type.
#[derive(Debug, Deserialize)]
struct Item {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Option<ItemContent>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ItemContent {
    Text(String),
    Parts(Vec<ItemPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemPart {
    #[serde(alias = "output_text", alias = "text")]
    InputText {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    InputImage {
        #[serde(default)]
        image_url: Option<String>,
    },
    InputAudio {
        input_audio: InputAudio,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct TextOptions {
    #[serde(default)]
    format: Option<Format>,
}

#[derive(Debug, Deserialize)]
struct Format {
    r#type: String,
}

/// A valid request.
#[derive(Debug)]
pub(super) struct ResponseRequest {
    /// The message to the agent.
    pub(super) chat: ChatRequest,
    /// The instructions as sent.
    pub(super) instructions: Option<String>,
    /// The response whose conversation continues.
    pub(super) previous: Option<String>,
    /// Set if the response is found again by its id.
    pub(super) is_stored: bool,
    pub(super) metadata: BTreeMap<String, String>,
}

impl ResponseRequest {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// When it is malformed, or asks for what an agent cannot do.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let wire: Wire =
            serde_json::from_slice(body).map_err(|error| ApiError::malformed(error.to_string()))?;
        wire.check()?;
        let Wire { model, input, instructions, previous_response_id, metadata, user, .. } = wire;
        let messages = input.into_messages()?;
        let all_instructions = joined_instructions(instructions.as_deref(), &messages)?;
        let (instructing, mut messages): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|(role, _)| is_instructing(role));
        let last = messages.pop().filter(|(role, _)| role == "user").map(|(_, content)| content);
        let LastMessage { text, media } = LastMessage::read("input", last.as_ref())?;
        let is_continued = previous_response_id.is_some();
        check_parts(&instructing, true)?;
        check_parts(&messages, is_continued)?;
        if let Some(instructions) = &all_instructions
            && instructions.len() + text.len() > MAX_TEXT_BYTES
        {
            let message =
                format!("instructions and last message exceed {MAX_TEXT_BYTES} bytes; send less");
            return Err(ApiError::invalid("instructions", message));
        }
        let earlier = messages.iter();
        let earlier =
            earlier.filter_map(|(role, content)| EarlierMessage::read(role, Some(content)));
        let chat = ChatRequest {
            model,
            text,
            media,
            earlier: earlier.collect(),
            stream: wire.stream.unwrap_or_default(),
            include_usage: true,
            stop: Vec::new(),
            user,
            instructions: all_instructions,
        };
        if is_continued && !has_space_for_earlier(&chat) {
            let message = format!(
                "the messages before the last one exceed {} KiB, or all of them {} KiB; send less",
                MAX_EARLIER_BYTES / 1024,
                MAX_TEXT_BYTES / 1024
            );
            return Err(ApiError::invalid("input", message));
        }
        Ok(Self {
            chat,
            instructions,
            previous: previous_response_id,
            is_stored: wire.store.unwrap_or(true),
            metadata: metadata.unwrap_or_default(),
        })
    }
}

impl Wire {
    /// Refuses what would silently be done otherwise.
    fn check(&self) -> Result<(), ApiError> {
        let refuse = |param, message: &str| Err(ApiError::invalid(param, message));
        if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            return refuse("tools", "an agent has its own tools; send none");
        }
        if self.tool_choice.as_ref().is_some_and(|choice| *choice != "auto") {
            return refuse(
                "tool_choice",
                "an agent chooses its tools itself; leave tool_choice out",
            );
        }
        let format = self.text.as_ref().and_then(|text| text.format.as_ref());
        if format.is_some_and(|format| format.r#type != "text") {
            return refuse("text", "an agent answers in text; leave text.format out");
        }
        if self.background == Some(true) {
            return refuse(
                "background",
                "responses in the background are not supported; send an Idempotency-Key, and repeat the request for its answer",
            );
        }
        if self.conversation.is_some() {
            return refuse("conversation", "send previous_response_id to continue a conversation");
        }
        if self.prompt.is_some() {
            return refuse("prompt", "there are no stored prompts; send instructions");
        }
        if self.moderation.is_some() {
            return refuse("moderation", "moderation is not supported; leave it out");
        }
        if self.max_tool_calls.is_some() {
            return refuse(
                "max_tool_calls",
                "an agent has its own limits; leave max_tool_calls out",
            );
        }
        let previous = self.previous_response_id.as_deref();
        if previous.is_some_and(|id| !(1..=MAX_ID_BYTES).contains(&id.len())) {
            return Err(ApiError::unknown_previous_response());
        }
        let metadata = self.metadata.iter().flatten();
        let is_valid = |(name, value): (&String, &String)| {
            name.chars().count() <= MAX_METADATA_NAME && value.chars().count() <= MAX_METADATA_VALUE
        };
        if self.metadata.as_ref().is_some_and(|all| all.len() > MAX_METADATA)
            || !metadata.into_iter().all(is_valid)
        {
            let message = format!(
                "send at most {MAX_METADATA} entries, with names of {MAX_METADATA_NAME} and values of \
                 {MAX_METADATA_VALUE} characters"
            );
            return Err(ApiError::invalid("metadata", message));
        }
        Ok(())
    }
}

impl Input {
    /// Returns the messages, each with its role.
    fn into_messages(self) -> Result<Vec<(String, Content)>, ApiError> {
        let items = match self {
            Self::Text(text) => return Ok(vec![("user".to_owned(), Content::Text(text))]),
            Self::Items(items) => items,
        };
        if items.len() > MAX_ITEMS {
            let message = format!("more than {MAX_ITEMS} items; send fewer");
            return Err(ApiError::invalid("input", message));
        }
        let mut messages = Vec::with_capacity(items.len());
        for Item { r#type, role, content } in items {
            match r#type.as_deref() {
                None | Some("message") => {}
                // Lines about the course of an earlier turn.
                Some("reasoning") => continue,
                Some(_) => {
                    let message = "unsupported item of the input; send messages: an agent runs its tools itself";
                    return Err(ApiError::invalid("input", message));
                }
            }
            if !matches!(role.as_str(), "user" | "assistant") && !is_instructing(&role) {
                let message = "unknown role; use user, assistant, system or developer";
                return Err(ApiError::invalid("input", message));
            }
            let content = content.map_or(Content::Parts(Vec::new()), ItemContent::into_content);
            messages.push((role, content));
        }
        Ok(messages)
    }
}

impl ItemContent {
    fn into_content(self) -> Content {
        match self {
            Self::Text(text) => Content::Text(text),
            Self::Parts(parts) => {
                Content::Parts(parts.into_iter().map(ItemPart::into_part).collect())
            }
        }
    }
}

impl ItemPart {
    fn into_part(self) -> Part {
        match self {
            Self::InputText { text } | Self::Refusal { refusal: text } => Part::Text { text },
            Self::InputImage { image_url: Some(url) } => {
                Part::ImageUrl { image_url: ImageUrl { url } }
            }
            Self::InputAudio { input_audio } => Part::InputAudio { input_audio },
            Self::InputImage { image_url: None } | Self::Other => Part::Other,
        }
    }
}

/// Returns whether the messages of a role are instructions.
fn is_instructing(role: &str) -> bool {
    matches!(role, "system" | "developer")
}

/// Refuses parts of messages before the last one that an agent does not get: files, and, if only the text of
/// the messages is sent, images and recordings.
fn check_parts(messages: &[(String, Content)], is_text_sent: bool) -> Result<(), ApiError> {
    for (_, content) in messages {
        let media = content.media("input")?;
        if is_text_sent && !media.is_empty() {
            let message = "send images and recordings in the last message";
            return Err(ApiError::invalid("input", message));
        }
    }
    Ok(())
}

/// Returns the instructions, and those among the messages.
fn joined_instructions(
    instructions: Option<&str>,
    messages: &[(String, Content)],
) -> Result<Option<String>, ApiError> {
    let among = messages.iter().filter(|(role, _)| is_instructing(role));
    let among = among.map(|(_, content)| content.text());
    let all: Vec<_> = instructions.map(str::to_owned).into_iter().chain(among).collect();
    let joined = all.join("\n\n");
    let joined = joined.trim();
    if joined.len() > MAX_INSTRUCTIONS_BYTES {
        let message = format!("the instructions exceed {MAX_INSTRUCTIONS_BYTES} bytes; send less");
        return Err(ApiError::invalid("instructions", message));
    }
    Ok((!joined.is_empty()).then(|| joined.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::request::Speaker, *};

    fn parse(extra: &Value) -> Result<ResponseRequest, Value> {
        let mut request = json!({"model": "a", "input": "hi"});
        let (Value::Object(request), Value::Object(extra)) = (&mut request, extra) else {
            panic!("objects")
        };
        request.extend(extra.clone());
        let body = serde_json::to_vec(request).unwrap();
        ResponseRequest::parse(&body).map_err(|error| error.to_json())
    }

    #[test]
    fn last_message_is_apart_from_earlier_ones_and_instructions() {
        let request = parse(&json!({"instructions": "Be brief.", "store": false, "input": [
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": " one "}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "two", "annotations": []}]},
            {"role": "user", "content": [
                {"type": "input_text", "text": "three"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ]},
        ]}))
        .unwrap();
        let chat = &request.chat;
        let earlier: Vec<_> =
            chat.earlier.iter().map(|message| (message.speaker, message.text.as_str())).collect();
        assert_eq!(earlier, [(Speaker::User, "one"), (Speaker::Assistant, "two")]);
        assert_eq!((chat.text.as_str(), chat.media.len(), chat.stream), ("three", 1, false));
        assert_eq!(chat.instructions.as_deref(), Some("Be brief.\n\nBe kind."));
        assert_eq!(request.instructions.as_deref(), Some("Be brief."));
        assert!(!request.is_stored && parse(&json!({})).unwrap().is_stored);
    }

    #[test]
    fn unsupported_parameters_are_refused_by_name() {
        let part = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
        let many: BTreeMap<_, _> = (0..17).map(|number| (number.to_string(), "x")).collect();
        for (extra, param) in [
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tool_choice": {"type": "function", "name": "x"}}), "tool_choice"),
            (json!({"text": {"format": {"type": "json_schema", "name": "x"}}}), "text"),
            (json!({"background": true}), "background"),
            (json!({"conversation": "conv_1"}), "conversation"),
            (json!({"prompt": {"id": "x"}}), "prompt"),
            (json!({"moderation": {"model": "x"}}), "moderation"),
            (json!({"max_tool_calls": 1}), "max_tool_calls"),
            (json!({"metadata": many}), "metadata"),
            (json!({"metadata": {"a": "x".repeat(513)}}), "metadata"),
            (json!({"previous_response_id": ""}), "previous_response_id"),
            (json!({"instructions": "x".repeat(MAX_INSTRUCTIONS_BYTES + 1)}), "instructions"),
            (json!({"instructions": "x", "input": "x".repeat(MAX_TEXT_BYTES)}), "instructions"),
            (json!({"input": ""}), "input"),
            (json!({"input": []}), "input"),
            (json!({"input": [{"role": "assistant", "content": "x"}]}), "input"),
            (
                json!({"input": [{"type": "function_call_output", "call_id": "x", "output": "x"}]}),
                "input",
            ),
            (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input"),
            (part(json!({"type": "input_file", "file_id": "x"})), "input"),
            (part(json!({"type": "input_image", "file_id": "x"})), "input"),
            (
                part(json!({"type": "input_image", "image_url": "https://example.com/a.png"})),
                "input",
            ),
        ] {
            let error = parse(&extra).unwrap_err();
            assert_eq!(error["error"]["param"], param, "{error}");
            assert_eq!(error["error"]["executed"], "no", "{error}");
        }
        let ignored = json!({"tools": [], "tool_choice": "auto", "background": false,
            "text": {"format": {"type": "text"}, "verbosity": "low"}, "conversation": null,
            "temperature": 1, "reasoning": {"effort": "low"}, "truncation": "auto",
            "include": ["reasoning.encrypted_content"], "max_output_tokens": 10});
        assert!(parse(&ignored).is_ok());
    }

    #[test]
    fn input_that_would_be_dropped_is_refused() {
        let image = json!([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]);
        let file = json!([{"type": "input_file", "file_id": "x"}]);
        let large = json!("x".repeat(MAX_EARLIER_BYTES));
        let before = |role: &str, content: &Value| {
            let last = json!({"role": "user", "content": "go on"});
            json!({"input": [{"role": role, "content": content}, last]})
        };
        let continued = |mut extra: Value| {
            extra["previous_response_id"] = json!("resp_x");
            extra
        };
        let mut filled = before("user", &json!("x".repeat(2048)));
        filled["input"][1]["content"] = json!("x".repeat(MAX_TEXT_BYTES - 1024));
        for extra in [
            json!({"input": [{"role": "user", "content": image}]}),
            continued(before("user", &image)),
            continued(before("user", &large)),
            continued(filled.clone()),
            before("user", &file),
            before("assistant", &file),
            before("system", &file),
            before("developer", &image),
            before("tool", &json!("x")),
            json!({"input": [{"content": "x"}, {"role": "user", "content": "go on"}]}),
        ] {
            let error = parse(&extra).unwrap_err();
            assert_eq!(error["error"]["param"], "input", "{error}");
        }
        // Without a previous response, the agent may have the messages.
        for extra in [before("user", &image), before("user", &large), filled] {
            assert!(parse(&extra).is_ok());
        }
        let fitting = json!("x".repeat(MAX_EARLIER_BYTES - 16));
        assert!(parse(&continued(before("user", &fitting))).is_ok());
    }

    #[test]
    fn malformed_body_is_refused() {
        for body in ["", "{}", "[]", "{\"model\": 1, \"input\": \"x\"}", "{\"model\": \"a\"}"] {
            let error = ResponseRequest::parse(body.as_bytes()).unwrap_err().to_json();
            assert_eq!(error["error"]["code"], "invalid_request", "{body}");
            assert_eq!(error["error"]["executed"], "no", "{body}");
        }
    }
}
