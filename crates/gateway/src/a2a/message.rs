//! Parameters of a message to an agent.

use base64::{Engine, engine::general_purpose::STANDARD};
use rockbot_contracts::{ApprovalDecision, ContentBlock, UserMessage};
use serde::Deserialize;
use serde_json::Value;

use super::error::A2aError;
use crate::decision::parse_decision;

/// Media types of parts that an agent accepts, besides text and data.
pub(super) const MEDIA_TYPES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg"];

/// Media type of answers.
pub(super) const OUTPUT_TYPE: &str = "text/plain";

/// Longest id that a client chooses, in bytes.
const MAX_ID_BYTES: usize = 255;
/// Longest text of a message, in bytes: that of a message to an agent.
const MAX_TEXT_BYTES: usize = 128 * 1024;

/// The parameters as sent. Unknown fields are ignored, as the protocol asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    message: WireMessage,
    #[serde(default)]
    configuration: Option<Configuration>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMessage {
    message_id: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    task_id: Option<String>,
    role: String,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    raw: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    data: Option<Value>,
    #[serde(default)]
    media_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    accepted_output_modes: Option<Vec<String>>,
    #[serde(default)]
    task_push_notification_config: Option<Value>,
    #[serde(default)]
    return_immediately: Option<bool>,
}

/// A valid message.
#[derive(Debug)]
pub(super) struct NewMessage {
    pub(super) id: String,
    pub(super) context: Option<String>,
    /// The task that it decides on.
    pub(super) task: Option<String>,
    pub(super) text: String,
    pub(super) media: Vec<ContentBlock>,
    pub(super) returns_immediately: bool,
    /// Configuration of push notifications for its task.
    pub(super) push: Option<Value>,
    data: Vec<Value>,
}

/// A decision on an approval request, as a data part of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decision {
    pub(super) approval_id: String,
    pub(super) call_hash: String,
    decision: String,
}

impl NewMessage {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    /// When they are malformed, or ask for what an agent cannot do.
    pub(super) fn parse(params: Value) -> Result<Self, A2aError> {
        let Wire { message, configuration } =
            serde_json::from_value(params).map_err(|error| A2aError::invalid(error.to_string()))?;
        let configuration = configuration.unwrap_or_default();
        configuration.check()?;
        let WireMessage { message_id, context_id, task_id, role, parts } = message;
        let (context, task) = (given(context_id), given(task_id));
        let ids = [Some(&message_id), context.as_ref(), task.as_ref()];
        for (id, name) in ids.into_iter().zip(["messageId", "contextId", "taskId"]) {
            if id.is_some_and(|id| !is_id(id)) {
                return Err(A2aError::invalid(format!(
                    "message.{name} must have 1 to {MAX_ID_BYTES} bytes, without control characters"
                )));
            }
        }
        if role != "ROLE_USER" {
            return Err(A2aError::invalid("message.role must be ROLE_USER"));
        }
        let (mut texts, mut media, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part.read()? {
                Content::Text(text) => texts.push(text),
                Content::Data(value) => {
                    texts.push(value.to_string());
                    data.push(value);
                }
                Content::Media(block) => media.push(block),
            }
        }
        let text = texts.join("\n");
        if text.len() > MAX_TEXT_BYTES {
            let detail =
                format!("the text of the message exceeds {MAX_TEXT_BYTES} bytes; send less");
            return Err(A2aError::invalid(detail));
        }
        if text.trim().is_empty() {
            return Err(A2aError::invalid("message.parts has no text; add a part with text"));
        }
        check_media(&media)?;
        let returns_immediately = configuration.return_immediately.unwrap_or_default();
        let push = configuration.task_push_notification_config.filter(|config| !config.is_null());
        Ok(Self { id: message_id, context, task, text, media, returns_immediately, push, data })
    }

    /// Returns the decision on an approval request among its parts.
    ///
    /// # Errors
    /// When the message has no decision, or an invalid one.
    pub(super) fn decision(&self) -> Result<(Decision, ApprovalDecision), A2aError> {
        let mut decisions = self.data.iter().filter_map(|data| Decision::deserialize(data).ok());
        let (Some(decision), None) = (decisions.next(), decisions.next()) else {
            return Err(A2aError::invalid(
                "the task waits for a decision; send one data part with approvalId, callHash and decision",
            ));
        };
        match parse_decision(&decision.decision) {
            Some(parsed) => Ok((decision, parsed)),
            None => Err(A2aError::invalid("the decision must be allow, allow_in_session or deny")),
        }
    }
}

impl Decision {
    /// Returns the name of the decision.
    pub(super) fn name(&self) -> &str {
        &self.decision
    }
}

impl Configuration {
    /// Refuses what would silently be left out otherwise.
    fn check(&self) -> Result<(), A2aError> {
        let modes = self.accepted_output_modes.as_deref().unwrap_or_default();
        let accepts =
            |mode: &String| ["*", "*/*", "text", "text/*", OUTPUT_TYPE].contains(&mode.as_str());
        if !modes.is_empty() && !modes.iter().any(accepts) {
            return Err(A2aError::content_type(format!(
                "an agent answers in {OUTPUT_TYPE}; add it to acceptedOutputModes"
            )));
        }
        Ok(())
    }
}

/// The content of a part.
enum Content {
    Text(String),
    Data(Value),
    Media(ContentBlock),
}

impl Part {
    fn read(self) -> Result<Content, A2aError> {
        let Self { text, raw, url, data, media_type } = self;
        match (text, raw, url, data) {
            (Some(text), None, None, None) => Ok(Content::Text(text)),
            (None, None, None, Some(data)) => Ok(Content::Data(data)),
            (None, Some(raw), None, None) => media(raw, media_type.as_deref().unwrap_or_default()),
            (None, None, Some(_), None) => Err(A2aError::content_type(
                "the gateway downloads nothing; send the content of the part as raw",
            )),
            _ => Err(A2aError::invalid("a part must have one of text, data, raw and url")),
        }
    }
}

fn media(data: String, kind: &str) -> Result<Content, A2aError> {
    let Some(kind) = MEDIA_TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(kind)) else {
        let known = MEDIA_TYPES.join(", ");
        return Err(A2aError::content_type(format!(
            "unsupported mediaType of a part; send text, data, or raw of the types {known}"
        )));
    };
    if STANDARD.decode(&data).is_err() {
        return Err(A2aError::invalid("the raw content of a part is no base64"));
    }
    let mime_type = kind.to_owned();
    Ok(Content::Media(if kind.starts_with("image/") {
        ContentBlock::Image { data, mime_type }
    } else {
        ContentBlock::Audio { data, mime_type }
    }))
}

fn check_media(media: &[ContentBlock]) -> Result<(), A2aError> {
    let sizes = media.iter().map(|block| match block {
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
        _ => 0,
    });
    if media.len() > UserMessage::MAX_MEDIA || sizes.sum::<usize>() > UserMessage::MAX_MEDIA_BYTES {
        let (number, bytes) = (UserMessage::MAX_MEDIA, UserMessage::MAX_MEDIA_BYTES);
        return Err(A2aError::invalid(format!(
            "too many or too large raw parts; send at most {number}, and {bytes} bytes of base64"
        )));
    }
    Ok(())
}

/// Returns a value that is set: an empty one is absent on this wire.
fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// Returns whether a client may choose this id.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(message: &Value, configuration: &Value) -> Result<NewMessage, i64> {
        let mut all = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        all.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
        let params = json!({"message": all, "configuration": configuration, "unknown": 1});
        NewMessage::parse(params).map_err(|error| error.to_json()["code"].as_i64().unwrap())
    }

    #[test]
    fn parts_become_text_and_media() {
        let message = json!({"contextId": "", "taskId": null, "parts": [
            {"text": "one", "mediaType": "text/plain", "metadata": {"a": 1}},
            {"data": {"two": 2}},
            {"raw": "AAAA", "mediaType": "image/png", "filename": "a.png"},
            {"raw": "AAAA", "mediaType": "audio/wav"},
        ]});
        let parsed = parse(&message, &json!({"returnImmediately": true})).unwrap();
        assert_eq!(parsed.text, "one\n{\"two\":2}");
        assert_eq!((parsed.context, parsed.task), (None, None));
        let (data, kind) = ("AAAA".to_owned(), "image/png".to_owned());
        assert_eq!(parsed.media[0], ContentBlock::Image { data, mime_type: kind });
        assert!(matches!(parsed.media[1], ContentBlock::Audio { .. }));
        assert!(parsed.returns_immediately);
    }

    #[test]
    fn unsupported_messages_are_refused_by_code() {
        let part = |part: Value| json!({"parts": [{"text": "hi"}, part]});
        let none = json!({});
        for (message, configuration, code) in [
            (json!({"messageId": ""}), &none, -32602),
            (json!({"messageId": "x".repeat(256)}), &none, -32602),
            (json!({"contextId": "a\nb"}), &none, -32602),
            (json!({"role": "ROLE_AGENT"}), &none, -32602),
            (json!({"parts": []}), &none, -32602),
            (json!({"parts": [{"text": "x".repeat(MAX_TEXT_BYTES + 1)}]}), &none, -32602),
            (json!({"parts": [{"raw": "AAAA", "mediaType": "image/png"}]}), &none, -32602),
            (part(json!({})), &none, -32602),
            (part(json!({"text": "a", "data": 1})), &none, -32602),
            (part(json!({"raw": "?", "mediaType": "image/png"})), &none, -32602),
            (part(json!({"raw": "A".repeat(800_000), "mediaType": "image/png"})), &none, -32602),
            (part(json!({"raw": "AAAA", "mediaType": "text/html"})), &none, -32005),
            (part(json!({"url": "https://example.com/a.png"})), &none, -32005),
            (none.clone(), &json!({"acceptedOutputModes": ["image/png"]}), -32005),
        ] {
            assert_eq!(parse(&message, configuration).unwrap_err(), code, "{message}");
        }
        assert!(parse(&none, &json!({"acceptedOutputModes": ["text/plain"]})).is_ok());
        let missing = NewMessage::parse(json!({"message": {"messageId": "m"}}));
        assert_eq!(missing.unwrap_err().to_json()["code"], -32602);
    }

    #[test]
    fn decision_is_one_data_part() {
        let decision = json!({"approvalId": "a", "callHash": "h", "decision": "deny"});
        let parsed = parse(&json!({"parts": [{"data": decision}]}), &json!({})).unwrap();
        let (decision, parsed) = parsed.decision().unwrap();
        assert_eq!((decision.call_hash.as_str(), parsed), ("h", ApprovalDecision::Deny));
        for parts in [
            json!([{"text": "allow"}]),
            json!([{"data": {"approvalId": "a", "callHash": "h", "decision": "maybe"}}]),
        ] {
            assert!(parse(&json!({"parts": parts}), &json!({})).unwrap().decision().is_err());
        }
    }
}
