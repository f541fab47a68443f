//! Requests of a chat completion.

use rockbot_contracts::ContentBlock;
use serde::{Deserialize, de::IgnoredAny};

use super::{content::Content, error::ApiError, stop::MAX_STOPS};

/// Maximum number of messages.
const MAX_MESSAGES: usize = 10_000;
/// Longest text of the last message, in bytes: that of a message to an agent.
const MAX_TEXT_BYTES: usize = 128 * 1024;
/// Longest stop sequence, in bytes.
const MAX_STOP_BYTES: usize = 256;

/// The request as sent. Parameters of models that an agent decides itself are ignored.
#[derive(Debug, Deserialize)]
struct Wire {
    model: String,
    messages: Vec<WireMessage>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    stop: Option<Stop>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    functions: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    response_format: Option<ResponseFormat>,
    #[serde(default)]
    user: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    r#type: String,
}

/// A valid request.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// Name of the agent.
    pub(super) model: String,
    /// Text of the last message.
    pub(super) text: String,
    /// Images and recordings of the last message.
    pub(super) media: Vec<ContentBlock>,
    /// The messages before it, oldest first, without instructions and results of tools.
    pub(super) earlier: Vec<EarlierMessage>,
    /// Set if the response is a stream.
    pub(super) stream: bool,
    /// Set if the stream ends with the usage.
    pub(super) include_usage: bool,
    /// Sequences before which the text ends.
    pub(super) stop: Vec<String>,
    /// The person on whose behalf the program sends the request.
    pub(super) user: Option<String>,
    /// Instructions of the client for the answer, which the agent gets with the message.
    pub(super) instructions: Option<String>,
}

/// The last message, which goes to the agent.
#[derive(Debug)]
pub(super) struct LastMessage {
    pub(super) text: String,
    pub(super) media: Vec<ContentBlock>,
}

/// A message before the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EarlierMessage {
    pub(super) speaker: Speaker,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
}

impl ChatRequest {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// When it is malformed, or asks for what an agent cannot do.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        // Its text may quote the request, which may be private, but it goes back to the sender only.
        let wire: Wire =
            serde_json::from_slice(body).map_err(|error| ApiError::malformed(error.to_string()))?;
        wire.check()?;
        let Wire { model, mut messages, stream, stream_options, stop, user, .. } = wire;
        let last = messages.pop().filter(|message| message.role == "user");
        let content = last.as_ref().and_then(|message| message.content.as_ref());
        let LastMessage { text, media } = LastMessage::read("messages", content)?;
        let earlier = messages
            .iter()
            .filter_map(|message| EarlierMessage::read(&message.role, message.content.as_ref()));
        let earlier = earlier.collect();
        let options = stream_options.unwrap_or_default();
        Ok(Self {
            model,
            text,
            media,
            earlier,
            stream: stream.unwrap_or_default(),
            include_usage: options.include_usage.unwrap_or_default(),
            stop: stop.map(Stop::into_sequences).unwrap_or_default(),
            user,
            instructions: None,
        })
    }

    /// Returns the text of the first message of a user.
    pub(super) fn first_text(&self) -> &str {
        let first = self.earlier.iter().find(|message| message.speaker == Speaker::User);
        first.map_or(&self.text, |message| &message.text)
    }
}

impl Wire {
    /// Refuses what would silently be done otherwise.
    fn check(&self) -> Result<(), ApiError> {
        if self.messages.len() > MAX_MESSAGES {
            let message = format!("more than {MAX_MESSAGES} messages; send fewer");
            return Err(ApiError::invalid("messages", message));
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::invalid("n", "an agent gives one answer; set n to 1"));
        }
        if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            return Err(ApiError::invalid("tools", "an agent has its own tools; send none"));
        }
        if self.functions.as_ref().is_some_and(|functions| !functions.is_empty()) {
            return Err(ApiError::invalid("functions", "an agent has its own tools; send none"));
        }
        if self.response_format.as_ref().is_some_and(|format| format.r#type != "text") {
            let message = "an agent answers in text; leave response_format out";
            return Err(ApiError::invalid("response_format", message));
        }
        let stops: &[String] = match &self.stop {
            None => &[],
            Some(Stop::One(stop)) => std::slice::from_ref(stop),
            Some(Stop::Many(stops)) => stops,
        };
        let is_valid = |stop: &String| (1..=MAX_STOP_BYTES).contains(&stop.len());
        if stops.len() > MAX_STOPS || !stops.iter().all(is_valid) {
            let message =
                format!("send at most {MAX_STOPS} sequences of 1 to {MAX_STOP_BYTES} bytes");
            return Err(ApiError::invalid("stop", message));
        }
        Ok(())
    }
}

impl Stop {
    fn into_sequences(self) -> Vec<String> {
        match self {
            Self::One(stop) => vec![stop],
            Self::Many(stops) => stops,
        }
    }
}

impl LastMessage {
    /// Reads the content of the last message of a user, in the parameter `param`.
    ///
    /// # Errors
    /// When it is missing or too large, or has no text: agents refuse messages without text.
    pub(super) fn read(param: &'static str, content: Option<&Content>) -> Result<Self, ApiError> {
        let content = content.ok_or_else(|| {
            ApiError::invalid(param, "the last message must be one of the role \"user\"")
        })?;
        let (text, media) = (content.text(), content.media(param)?);
        if text.len() > MAX_TEXT_BYTES {
            let message = format!("the last message exceeds {MAX_TEXT_BYTES} bytes; send less");
            return Err(ApiError::invalid(param, message));
        }
        if text.trim().is_empty() {
            return Err(ApiError::invalid(param, "the last message has no text; add some"));
        }
        Ok(Self { text, media })
    }
}

impl EarlierMessage {
    /// Reads a message of a user or an assistant; `None` for others, and for one without text.
    pub(super) fn read(role: &str, content: Option<&Content>) -> Option<Self> {
        let speaker = match role {
            "user" => Speaker::User,
            "assistant" => Speaker::Assistant,
            _ => return None,
        };
        let text = content.map(Content::text).unwrap_or_default();
        let text = text.trim();
        (!text.is_empty()).then(|| Self { speaker, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(extra: &Value) -> Result<ChatRequest, Value> {
        let mut request = json!({"model": "a", "messages": [{"role": "user", "content": "hi"}]});
        let (Value::Object(request), Value::Object(extra)) = (&mut request, extra) else {
            panic!("objects")
        };
        request.extend(extra.clone());
        ChatRequest::parse(&serde_json::to_vec(request).unwrap()).map_err(|error| error.to_json())
    }

    #[test]
    fn last_message_is_apart_from_earlier_ones() {
        let request = parse(&json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": " one "}]},
            {"role": "assistant", "content": null, "tool_calls": []},
            {"role": "tool", "content": "result", "tool_call_id": "x"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [
                {"type": "text", "text": "three"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
        ]}))
        .unwrap();
        let earlier: Vec<_> = request
            .earlier
            .iter()
            .map(|message| (message.speaker, message.text.as_str()))
            .collect();
        assert_eq!(earlier, [(Speaker::User, "one"), (Speaker::Assistant, "two")]);
        assert_eq!((request.text.as_str(), request.first_text()), ("three", "one"));
        let image = ContentBlock::Image { data: "AAAA".into(), mime_type: "image/png".into() };
        assert_eq!(request.media, [image]);
    }

    #[test]
    fn unsupported_parameters_are_refused_by_name() {
        let image = |url: &str| {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            json!({"messages": [{"role": "user", "content": [part]}]})
        };
        for (extra, param) in [
            (json!({"n": 2}), "n"),
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"functions": [{}]}), "functions"),
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
            (json!({"stop": ""}), "stop"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"role": "assistant", "content": "x"}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": " "}]}), "messages"),
            (
                json!({"messages": [{"role": "user", "content": "x".repeat(MAX_TEXT_BYTES + 1)}]}),
                "messages",
            ),
            (image("https://example.com/a.png"), "messages"),
            (image("data:text/html;base64,AAAA"), "messages"),
            (image("data:image/png;base64,AAAA"), "messages"),
            (image(&format!("data:image/png;base64,{}", "A".repeat(800_000))), "messages"),
        ] {
            let error = parse(&extra).unwrap_err();
            assert_eq!(error["error"]["param"], param, "{error}");
            assert_eq!(error["error"]["type"], "invalid_request_error");
        }
        assert!(parse(&json!({"n": 1, "tools": [], "response_format": {"type": "text"}})).is_ok());
    }

    #[test]
    fn malformed_body_is_refused() {
        let deep = "[".repeat(1000);
        for body in ["", "{}", "[]", "{\"model\": 1, \"messages\": []}", &deep] {
            let error = ChatRequest::parse(body.as_bytes()).unwrap_err().to_json();
            assert_eq!(error["error"]["code"], "invalid_request", "{body}");
            assert_eq!(error["error"]["executed"], "no", "{body}");
        }
    }
}
