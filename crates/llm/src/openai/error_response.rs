//! Error responses of model servers, in the formats that they use.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::OpenAiSettings;
use crate::error::ChatError;

/// The longest server text in an error message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// An error reported by a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    pub(super) message: String,
    /// `code` and `type`, where they are strings.
    codes: Vec<String>,
    /// `code`, where it is a number.
    code: Option<u16>,
}

/// The context of a failed request.
pub(super) struct RequestContext<'a> {
    /// The HTTP status; absent for an error inside the stream.
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) model: &'a str,
    pub(super) settings: &'a OpenAiSettings,
}

impl ErrorResponse {
    /// Parses the body of an error response: JSON in one of several formats, or any text.
    pub(super) fn from_body(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_value(value.get("error").unwrap_or(&value)),
            Err(_) => {
                let message = String::from_utf8_lossy(body).into_owned();
                Self { message, ..Self::default() }
            }
        }
    }

    /// Parses an error value: an object in OpenAI's format, FastAPI's `detail`, or a string.
    pub(super) fn from_value(error: &Value) -> Self {
        let message = match error {
            Value::String(text) => text.clone(),
            _ => match error.get("message").or_else(|| error.get("detail")) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => error.to_string(),
            },
        };
        let codes = [error.get("code"), error.get("type")];
        let codes = codes.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let code = error.get("code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok());
        Self { message, codes: codes.collect(), code }
    }

    /// Converts the response to the error that a caller acts on. All classification happens here.
    pub(super) fn into_error(self, context: &RequestContext<'_>) -> ChatError {
        let RequestContext { status, retry_after, model, settings } = context;
        let status = status.or(self.code);
        let is_overflow = self.is_context_overflow(status);
        let has_no_quota = self.has_code("insufficient_quota");
        let message = sanitize(&self.message, settings.api_key.as_ref());
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
            // A missing quota is not a rate limit although it has status 429: a retry does not help.
            Some(429) if !has_no_quota => {
                ChatError::RateLimited { message, retry_after: *retry_after }
            }
            _ if is_overflow => ChatError::ContextOverflow { message },
            _ => ChatError::Rejected { status, message },
        }
    }

    fn has_code(&self, code: &str) -> bool {
        self.codes.iter().any(|candidate| candidate == code)
    }

    /// Detects a context overflow. OpenAI and llama.cpp have a code for it; vLLM, OpenRouter and Ollama
    /// only a message.
    fn is_context_overflow(&self, status: Option<u16>) -> bool {
        if self.has_code("context_length_exceeded") || self.has_code("exceed_context_size_error") {
            return true;
        }
        if !matches!(status, None | Some(400 | 413 | 422)) {
            return false;
        }
        let message = self.message.to_lowercase();
        ["context length", "context size", "context window", "prompt is too long"]
            .iter()
            .any(|phrase| message.contains(phrase))
    }
}

/// Sanitizes a server's text for terminals and logs: short, on one line, without the key.
pub(super) fn sanitize(message: &str, api_key: Option<&SecretString>) -> String {
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
        let context = RequestContext { status, retry_after: None, model: "m", settings: &settings };
        ErrorResponse::from_body(body.as_bytes()).into_error(&context)
    }

    #[test]
    fn context_overflow_is_detected_for_every_server() {
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
    fn stream_error_is_classified_by_its_code() {
        let error = classify(None, r#"{"error":{"message":"provider down","code":502}}"#);
        assert!(matches!(error, ChatError::Rejected { status: Some(502), .. }));
        assert!(error.is_transient());
        let error = classify(None, r#"{"error":{"message":"slow down","code":429}}"#);
        assert!(matches!(error, ChatError::RateLimited { .. }));
    }

    #[test]
    fn missing_quota_is_not_a_rate_limit() {
        let body = r#"{"error":{"message":"quota","code":"insufficient_quota"}}"#;
        assert!(!classify(Some(429), body).is_transient());
    }

    #[test]
    fn server_texts_are_short_sanitized_and_without_key() {
        let body = format!("wrong key sk-secret\u{1b}[31m\n{}", "x".repeat(10_000));
        let error = classify(Some(401), &body);
        let text = format!("{error} {error:?}");
        assert!(!text.contains("sk-secret") && !text.contains('\u{1b}') && !text.contains('\n'));
        assert!(error.to_string().len() < 1000);
    }
}
