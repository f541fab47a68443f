//! What a server says when it refuses, in the shapes that servers use.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::OpenAiSettings;
use crate::error::ChatError;

/// The longest text of a server in an error message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// An error as a server words it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) message: String,
    /// `code` and `type`, whichever are words.
    words: Vec<String>,
    /// `code`, where it is a number.
    code: Option<u16>,
}

/// The rest of what is known about a refused request.
pub(super) struct Circumstances<'a> {
    /// The HTTP status; absent for an error inside the stream.
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) model: &'a str,
    pub(super) settings: &'a OpenAiSettings,
}

impl Refusal {
    /// Reads the body of an error response: JSON in one of several shapes, or any text.
    pub(super) fn from_body(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_value(value.get("error").unwrap_or(&value)),
            Err(_) => {
                let message = String::from_utf8_lossy(body).into_owned();
                Self { message, ..Self::default() }
            }
        }
    }

    /// Reads the error itself: an object as OpenAI writes it, FastAPI's `detail`, or a string.
    pub(super) fn from_value(error: &Value) -> Self {
        let message = match error {
            Value::String(text) => text.clone(),
            _ => match error.get("message").or_else(|| error.get("detail")) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => error.to_string(),
            },
        };
        let words = [error.get("code"), error.get("type")];
        let words = words.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let code = error.get("code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok());
        Self { message, words: words.collect(), code }
    }

    /// Turns the refusal into the error that a caller acts on: the only place that decides it.
    pub(super) fn into_error(self, circumstances: &Circumstances<'_>) -> ChatError {
        let Circumstances { status, retry_after, model, settings } = circumstances;
        let status = status.or(self.code);
        let is_overflow = self.is_context_overflow(status);
        let has_no_quota = self.has_word("insufficient_quota");
        let message = presentable(&self.message, settings.api_key.as_ref());
        match status {
            Some(status @ (401 | 403)) => {
                let hint = settings.key_source.hint(settings.api_key.is_some());
                ChatError::Unauthorized { status, message, hint }
            }
            Some(404) => ChatError::ModelNotFound {
                model: (*model).to_owned(),
                endpoint: settings.base_url.clone(),
                message,
            },
            // Waiting brings no money, so this is not a rate limit although it says 429.
            Some(429) if !has_no_quota => {
                ChatError::RateLimited { message, retry_after: *retry_after }
            }
            _ if is_overflow => ChatError::ContextOverflow { message },
            _ => ChatError::Rejected { status, message },
        }
    }

    fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|candidate| candidate == word)
    }

    /// OpenAI and llama.cpp have a code for it; vLLM, OpenRouter and Ollama only say so.
    fn is_context_overflow(&self, status: Option<u16>) -> bool {
        if self.has_word("context_length_exceeded") || self.has_word("exceed_context_size_error") {
            return true;
        }
        if !matches!(status, None | Some(400 | 413 | 422)) {
            return false;
        }
        let message = self.message.to_lowercase();
        ["context length", "context size", "context window", "prompt is too long"]
            .iter()
            .any(|words| message.contains(words))
    }
}

/// A server's text, fit for a terminal and a log: short, on one line, without the key.
pub(super) fn presentable(message: &str, api_key: Option<&SecretString>) -> String {
    let mut message = message.to_owned();
    if let Some(key) = api_key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
        message = message.replace(key, "[the API key]");
    }
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = message.trim().chars().take(MAX_MESSAGE_CHARS).map(clean).collect();
    if message.trim().chars().nth(MAX_MESSAGE_CHARS).is_some() {
        short.push('…');
    }
    if short.is_empty() { "(no explanation)".to_owned() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(status: Option<u16>, body: &str) -> ChatError {
        let settings = OpenAiSettings { api_key: Some("sk-secret".into()), ..Default::default() };
        let circumstances =
            Circumstances { status, retry_after: None, model: "m", settings: &settings };
        Refusal::from_body(body.as_bytes()).into_error(&circumstances)
    }

    #[test]
    fn a_context_overflow_is_found_in_the_words_of_every_server() {
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds","type":"exceed_context_size_error","n_ctx":4096}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000.","type":"BadRequestError","code":400}"#,
            ),
            (413, r#"{"error":"input exceeds the context window"}"#),
            (500, r#"{"error":{"code":500,"message":"x","type":"exceed_context_size_error"}}"#),
        ] {
            let error = classify(Some(status), body);
            assert!(matches!(error, ChatError::ContextOverflow { .. }), "{body}: {error:?}");
        }
        let error = classify(Some(400), r#"{"error":{"message":"bad tool schema"}}"#);
        assert!(matches!(error, ChatError::Rejected { status: Some(400), .. }));
        let error = classify(Some(413), "Payload Too Large");
        assert!(matches!(error, ChatError::Rejected { status: Some(413), .. }));
    }

    #[test]
    fn an_error_inside_the_stream_is_classified_by_its_code() {
        let error = classify(None, r#"{"error":{"message":"provider down","code":502}}"#);
        assert!(matches!(error, ChatError::Rejected { status: Some(502), .. }));
        assert!(error.is_transient());
        let error = classify(None, r#"{"error":{"message":"slow down","code":429}}"#);
        assert!(matches!(error, ChatError::RateLimited { .. }));
    }

    #[test]
    fn an_empty_purse_is_no_rate_limit() {
        let body = r#"{"error":{"message":"quota","code":"insufficient_quota"}}"#;
        assert!(!classify(Some(429), body).is_transient());
    }

    #[test]
    fn texts_of_servers_are_short_clean_and_keep_the_key_to_themselves() {
        let body = format!("wrong key sk-secret\u{1b}[31m\n{}", "x".repeat(10_000));
        let error = classify(Some(401), &body);
        let text = format!("{error} {error:?}");
        assert!(!text.contains("sk-secret") && !text.contains('\u{1b}') && !text.contains('\n'));
        assert!(error.to_string().len() < 1000);
    }
}
