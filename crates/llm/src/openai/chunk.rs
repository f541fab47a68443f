//! Parsing of `chat.completion.chunk` events.

use serde::Deserialize;
use serde_json::Value;

use super::error_response::ErrorResponse;
use crate::{
    chat::{ChatEvent, FinishReason, Usage},
    error::ChatError,
};

/// The content of one event.
#[derive(Debug, PartialEq)]
pub(super) enum ChunkContent {
    /// Pieces of the answer, and the finish reason if the model stopped.
    Pieces(Vec<ChatEvent>, Option<FinishReason>),
    /// The server failed during the answer.
    Failure(ErrorResponse),
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    /// OpenRouter's, in US dollars. A server may send anything.
    cost: Option<Value>,
}

impl ChunkContent {
    /// Parses the data of an event. Null and unknown fields are accepted: servers add some and omit others.
    pub(super) fn parse(data: &str) -> Result<Self, ChatError> {
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|error| ChatError::malformed(format!("a chunk of the stream: {error}")))?;
        if let Some(error) = chunk.error {
            return Ok(Self::Failure(ErrorResponse::from_value(&error)));
        }
        let Some(choices) = chunk.choices else {
            return Self::without_choices(data, chunk.usage);
        };
        let mut pieces = Vec::new();
        let mut finish = None;
        for choice in choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(delta) = choice.delta {
                delta.read(&mut pieces);
            }
            finish = choice.finish_reason.filter(|reason| !reason.is_empty()).map(finish_reason);
        }
        pieces.extend(chunk.usage.map(ChatEvent::from));
        Ok(Self::Pieces(pieces, finish))
    }

    /// vLLM and older llama.cpp put the fields of an error at the top level.
    fn without_choices(data: &str, usage: Option<WireUsage>) -> Result<Self, ChatError> {
        if let Some(usage) = usage {
            return Ok(Self::Pieces(vec![usage.into()], None));
        }
        match serde_json::from_str::<Value>(data) {
            Ok(value) if value.get("message").is_some() => {
                Ok(Self::Failure(ErrorResponse::from_value(&value)))
            }
            _ => Err(ChatError::malformed("a chunk of the stream has no choices")),
        }
    }
}

impl Delta {
    fn read(self, pieces: &mut Vec<ChatEvent>) {
        for text in [self.content, self.refusal].into_iter().flatten() {
            if !text.is_empty() {
                pieces.push(ChatEvent::Text(text));
            }
        }
        for call in self.tool_calls.into_iter().flatten() {
            let (name, arguments) = match call.function {
                Some(function) => (function.name, function.arguments),
                None => (None, None),
            };
            let arguments = match arguments {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text,
                Some(object) => object.to_string(),
            };
            let CallDelta { index, id, .. } = call;
            pieces.push(ChatEvent::ToolCallDelta { index, id, name, arguments });
        }
    }
}

impl From<WireUsage> for ChatEvent {
    fn from(usage: WireUsage) -> Self {
        let WireUsage { prompt_tokens, completion_tokens, cost } = usage;
        let dollars = cost.and_then(|cost| cost.as_f64()).filter(|dollars| *dollars >= 0.0);
        let cost_micros = dollars.map(|dollars| (dollars * 1e6).round() as u64);
        Self::Usage(Usage { prompt_tokens, completion_tokens, cost_micros })
    }
}

fn finish_reason(text: String) -> FinishReason {
    match text.as_str() {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(data: &str) -> (Vec<ChatEvent>, Option<FinishReason>) {
        match ChunkContent::parse(data).unwrap() {
            ChunkContent::Pieces(pieces, finish) => (pieces, finish),
            ChunkContent::Failure(response) => panic!("{response:?}"),
        }
    }

    #[test]
    fn null_and_missing_fields_yield_no_events() {
        for data in [
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":null},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":""}]}"#,
            r#"{"choices":[],"error":null}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
        ] {
            assert_eq!(pieces(data), (vec![], None), "{data}");
        }
    }

    #[test]
    fn arguments_may_be_an_object() {
        let (pieces, _) = pieces(
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"add","arguments":{"a":1}}}]}}]}"#,
        );
        let expected = ChatEvent::ToolCallDelta {
            index: None,
            id: None,
            name: Some("add".into()),
            arguments: r#"{"a":1}"#.into(),
        };
        assert_eq!(pieces, [expected]);
    }

    #[test]
    fn cost_is_reported_if_the_server_sends_it() {
        let costs = |cost: &str| {
            let data = format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":7,"cost":{cost}}}}}"#
            );
            match pieces(&data).0.as_slice() {
                [ChatEvent::Usage(usage)] => usage.cost_micros,
                _ => panic!("no usage"),
            }
        };
        assert_eq!(costs("0.00123"), Some(1230));
        assert_eq!([costs("null"), costs("-1"), costs("\"free\"")], [None, None, None]);
    }

    #[test]
    fn usage_is_read_with_or_without_choices() {
        let usage = |cost_micros| {
            ChatEvent::Usage(Usage { prompt_tokens: 5, completion_tokens: 7, cost_micros })
        };
        for data in [
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#,
            r#"{"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#,
        ] {
            assert_eq!(pieces(data), (vec![usage(None)], None));
        }
    }

    #[test]
    fn unknown_finish_reason_keeps_its_text() {
        let (_, finish) = pieces(r#"{"choices":[{"delta":{},"finish_reason":"eos"}]}"#);
        assert_eq!(finish, Some(FinishReason::Other("eos".into())));
    }

    #[test]
    fn errors_are_found_in_every_position() {
        for data in [
            r#"{"error":{"message":"out of memory","code":500}}"#,
            r#"{"error":"out of memory"}"#,
            r#"{"object":"error","message":"out of memory","code":500}"#,
        ] {
            let content = ChunkContent::parse(data).unwrap();
            let ChunkContent::Failure(response) = content else { panic!("{content:?}") };
            assert_eq!(response.message, "out of memory");
        }
    }

    #[test]
    fn invalid_chunks_are_malformed() {
        for data in ["", "hello", "[]", "{}", r#"{"choices":[{"delta":{"content":3}}]}"#] {
            let result = ChunkContent::parse(data);
            assert!(matches!(result, Err(ChatError::Malformed { .. })), "{data}");
        }
    }
}
