//! The result of a stream.

use rockbot_tools::{ContentBlock, ToolResult};
use serde_json::Value;

use super::config::{StreamConfig, StreamMode};

/// Last message of many event streams, which is not JSON.
const DONE: &str = "[DONE]";

/// Meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The text has not changed.
    Ignored,
    /// The text has grown.
    Grown,
    /// The stream is finished.
    Done,
    /// The message is not JSON.
    NotJson,
    /// The text has reached its limit.
    Full,
}

/// Reason why a stream was read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Its last message arrived, or it needs none and ended.
    Complete,
    /// It ended without its last message.
    Incomplete,
    NotJson,
    MessageTooLong,
    /// It has too many bytes for its text.
    TooLong,
    Full,
    Broken,
    Silent,
}

/// Collects the text of a stream.
pub(super) struct Collector<'a> {
    config: &'a StreamConfig,
    max_bytes: usize,
    text: String,
    answer: Option<String>,
    messages: usize,
}

impl<'a> Collector<'a> {
    pub(super) fn new(config: &'a StreamConfig, max_bytes: usize) -> Self {
        Self { config, max_bytes, text: String::new(), answer: None, messages: 0 }
    }

    /// Returns the text so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns `true` if no message has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub(super) fn accept(&mut self, message: &str) -> Step {
        self.messages += 1;
        let config = self.config;
        let is_done_text = config.done_value.as_deref() == Some(message);
        if is_done_text || config.mode == StreamMode::Sse && message == DONE {
            return Step::Done;
        }
        let Ok(value) = serde_json::from_str::<Value>(message) else { return Step::NotJson };
        let kind = config.discriminator_field.as_ref().and_then(|name| field(&value, name));
        let is_kind = |wanted: &Option<String>| match (wanted, kind) {
            (Some(wanted), Some(Value::String(kind))) => wanted == kind,
            (Some(wanted), Some(kind)) => text_of(kind) == *wanted,
            _ => false,
        };
        if is_kind(&config.done_value) {
            let answer = config.answer_field.as_ref().and_then(|name| field(&value, name));
            self.answer = answer.map(text_of);
            return Step::Done;
        }
        let added = match &config.token_field {
            Some(_) if config.token_value.is_some() && !is_kind(&config.token_value) => None,
            Some(name) => field(&value, name).filter(|token| !token.is_null()).map(text_of),
            None => Some(format!("{value}\n")),
        };
        match added.filter(|text| !text.is_empty()) {
            None => Step::Ignored,
            Some(added) if self.text.len() + added.len() > self.max_bytes => Step::Full,
            Some(added) => {
                self.text.push_str(&added);
                Step::Grown
            }
        }
    }

    /// Returns how a stream ended that was read to its end.
    pub(super) fn end_of_stream(&self) -> StreamEnd {
        match self.config.done_value {
            Some(_) => StreamEnd::Incomplete,
            None => StreamEnd::Complete,
        }
    }

    /// Returns the result, or the text so far as an error.
    pub(super) fn into_result(self, end: StreamEnd) -> ToolResult {
        let text = self.answer.unwrap_or_else(|| self.text.trim_end_matches('\n').to_owned());
        let problem = match end {
            StreamEnd::Complete if text.is_empty() => {
                return ToolResult::text("(the stream ended without content)");
            }
            StreamEnd::Complete => return ToolResult::text(text),
            StreamEnd::Full => {
                let note =
                    format!("[the stream exceeds {} bytes; the rest was not read]", self.max_bytes);
                let mut result = ToolResult::text(text);
                result.content.push(ContentBlock::Text { text: note });
                return result;
            }
            StreamEnd::Incomplete => "the stream ended before its last message".to_owned(),
            StreamEnd::NotJson => format!("message {} of the stream is not JSON", self.messages),
            StreamEnd::MessageTooLong => {
                format!("message {} of the stream exceeds 1 MiB", self.messages + 1)
            }
            StreamEnd::TooLong => {
                "the stream is too long for its text; the rest was not read".to_owned()
            }
            StreamEnd::Broken => "the connection broke before the stream ended".to_owned(),
            StreamEnd::Silent => "the stream was silent for too long".to_owned(),
        };
        ToolResult::error(match text.is_empty() {
            true => format!("{problem}; nothing was received before"),
            false => format!("{problem}; received before:\n{text}"),
        })
    }
}

/// Returns the member of a message, or the value at a JSON pointer.
fn field<'a>(message: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') { message.pointer(name) } else { message.get(name) }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> StreamConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn tokens_are_joined_and_answer_replaces_them() {
        let config = config(json!({
            "mode": "json-stream", "linePrefix": "data:", "discriminatorField": "type",
            "doneValue": "done", "answerField": "answer", "tokenValue": "token",
            "tokenField": "content",
        }));
        let mut collector = Collector::new(&config, 1000);
        assert_eq!(collector.accept(r#"{"type":"token","content":"a"}"#), Step::Grown);
        assert_eq!(collector.accept(r#"{"type":"status","content":"x"}"#), Step::Ignored);
        assert_eq!(collector.accept(r#"{"type":"token","content":"b"}"#), Step::Grown);
        assert_eq!(collector.text(), "ab");
        assert_eq!(collector.accept(r#"{"type":"done","answer":"AB"}"#), Step::Done);
        assert_eq!(collector.into_result(StreamEnd::Complete).to_text(), "AB");
    }

    #[test]
    fn fields_may_be_pointers() {
        let config = config(json!({"mode": "sse", "tokenField": "/choices/0/delta/content"}));
        let mut collector = Collector::new(&config, 1000);
        collector.accept(r#"{"choices":[{"delta":{"role":"assistant"}}]}"#);
        collector.accept(r#"{"choices":[{"delta":{"content":"hi"}}]}"#);
        assert_eq!(collector.accept("[DONE]"), Step::Done);
        assert_eq!(collector.into_result(StreamEnd::Complete).to_text(), "hi");
    }

    #[test]
    fn messages_are_result_without_token_field() {
        let config = config(json!({"mode": "ndjson"}));
        let mut collector = Collector::new(&config, 17);
        assert_eq!(collector.accept("{\"a\": 1}"), Step::Grown);
        assert_eq!(collector.accept("{\"b\": 2}"), Step::Grown);
        assert_eq!(collector.accept("{\"c\": 3}"), Step::Full);
        let text = collector.into_result(StreamEnd::Full).to_text().into_owned();
        assert!(text.starts_with("{\"a\":1}\n{\"b\":2}\n[the stream exceeds 17 bytes"), "{text}");
    }

    #[test]
    fn incomplete_streams_are_errors_with_their_text() {
        let config = config(json!({"mode": "ndjson", "tokenField": "t", "doneValue": "end"}));
        for end in [
            StreamEnd::Incomplete,
            StreamEnd::NotJson,
            StreamEnd::MessageTooLong,
            StreamEnd::TooLong,
            StreamEnd::Broken,
            StreamEnd::Silent,
        ] {
            let mut collector = Collector::new(&config, 1000);
            assert!(collector.is_empty());
            collector.accept("{\"t\": \"part\"}");
            assert_eq!(collector.accept("oops"), Step::NotJson);
            assert_eq!(collector.end_of_stream(), StreamEnd::Incomplete);
            let result = collector.into_result(end);
            assert!(result.is_error && result.to_text().ends_with("received before:\npart"));
        }
        let mut collector = Collector::new(&config, 1000);
        assert_eq!(collector.accept("end"), Step::Done);
        assert!(collector.into_result(StreamEnd::Complete).to_text().contains("without content"));
    }
}
