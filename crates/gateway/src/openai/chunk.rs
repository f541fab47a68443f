//! The bodies of responses: a completion, or the chunks of a stream.

use bytes::Bytes;
use rockbot_contracts::{AgentName, MessageId, TurnUsage};
use serde_json::{Value, json};

use super::error::ApiError;
use crate::{clock::now_ms, event_stream::event};

/// The end of a stream.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";

/// The fields that all chunks of a completion share.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    id: String,
    model: AgentName,
    created: u64,
}

impl Completion {
    /// Creates the completion of a message. A repeated request has the same id.
    pub(super) fn new(message: &MessageId, model: AgentName) -> Self {
        Self { id: format!("chatcmpl-{message}"), model, created: now_ms() / 1000 }
    }

    /// Returns the whole response.
    pub(super) fn whole(&self, content: &str, reasoning: &str, usage: Option<&TurnUsage>) -> Value {
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        let choice =
            json!({"index": 0, "message": message, "finish_reason": "stop", "logprobs": null});
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": usage_json(usage),
        })
    }

    /// Returns the first chunk of a stream.
    pub(super) fn start(&self) -> Bytes {
        self.chunk(&json!({"role": "assistant", "content": ""}), None)
    }

    /// Returns a chunk with text of the answer.
    pub(super) fn content(&self, text: &str) -> Bytes {
        self.chunk(&json!({"content": text}), None)
    }

    /// Returns a chunk with a line about the course of the turn.
    pub(super) fn reasoning(&self, line: &str) -> Bytes {
        self.chunk(&json!({"reasoning_content": line}), None)
    }

    /// Returns a chunk with a line about an approval request, and its details in a field of RockBot's own.
    pub(super) fn approval(&self, line: &str, details: &Value) -> Bytes {
        let mut chunk = self.chunk_json(&json!({"reasoning_content": line}), None);
        chunk["rockbot"] = json!({"approval": details});
        event(&chunk)
    }

    /// Returns the chunk after the last text.
    pub(super) fn finish(&self) -> Bytes {
        self.chunk(&json!({}), Some("stop"))
    }

    /// Returns the chunk with the usage, which has no choice.
    pub(super) fn usage(&self, usage: Option<&TurnUsage>) -> Bytes {
        let mut chunk = self.chunk_json(&json!({}), None);
        chunk["choices"] = json!([]);
        chunk["usage"] = usage_json(usage);
        event(&chunk)
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Bytes {
        event(&self.chunk_json(delta, finish))
    }

    fn chunk_json(&self, delta: &Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": null}],
        })
    }
}

/// Returns the event for a failure in a stream that has begun.
pub(super) fn failure(error: &ApiError) -> Bytes {
    event(&error.to_json())
}

fn usage_json(usage: Option<&TurnUsage>) -> Value {
    let turn = usage.map(|usage| usage.turn).unwrap_or_default();
    json!({
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "total_tokens": turn.prompt_tokens.saturating_add(turn.completion_tokens),
    })
}
