//! The response object, and its items.

use std::collections::BTreeMap;

use rockbot_contracts::{AgentName, MessageId, TurnUsage, user::TurnOutcome};
use serde_json::{Value, json};

use super::super::error::ApiError;

/// Beginning of the id of a response; the id of its message follows.
const RESPONSE_PREFIX: &str = "resp_";

/// The state of a response.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ResponseState<'a> {
    /// The agent has not begun.
    Queued,
    InProgress,
    Ended(TurnOutcome, Option<&'a TurnUsage>),
    Failed(&'a ApiError),
}

/// The fields that a response has in all its states.
#[derive(Debug, Clone)]
pub(super) struct ResponseObject {
    pub(super) message: MessageId,
    pub(super) model: AgentName,
    /// In seconds since 1970.
    pub(super) created_s: u64,
    /// `None` if the list is empty or not recorded.
    pub(super) instructions: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) is_stored: bool,
}

impl ResponseState<'_> {
    fn status(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Ended(TurnOutcome::Cancelled, _) => "incomplete",
            Self::Ended(..) => "completed",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the status of the item with the answer.
    pub(super) fn item_status(&self) -> &'static str {
        match self {
            Self::Ended(TurnOutcome::Cancelled, _) | Self::Failed(_) => "incomplete",
            Self::Ended(..) => "completed",
            Self::Queued | Self::InProgress => "in_progress",
        }
    }

    /// Returns the type of the event with the last state of a response.
    pub(super) fn last_event(&self) -> String {
        format!("response.{}", self.status())
    }
}

impl ResponseObject {
    /// Returns the id of the response. A repeated request has the same id.
    pub(super) fn id(&self) -> String {
        format!("{RESPONSE_PREFIX}{}", self.message)
    }

    /// Returns the response with these items.
    pub(super) fn to_json(&self, state: &ResponseState<'_>, output: &[Value]) -> Value {
        let (mut usage, mut error, mut incomplete) = (Value::Null, Value::Null, Value::Null);
        match state {
            ResponseState::Queued | ResponseState::InProgress => {}
            ResponseState::Ended(outcome, turn) => {
                usage = usage_json(*turn);
                if *outcome == TurnOutcome::Cancelled {
                    incomplete = json!({"reason": "cancelled"});
                }
            }
            ResponseState::Failed(failed) => error = failed.to_failure(),
        }
        json!({
            "id": self.id(),
            "object": "response",
            "created_at": self.created_s,
            "status": state.status(),
            "background": false,
            "error": error,
            "incomplete_details": incomplete,
            "instructions": self.instructions,
            "max_output_tokens": null,
            "metadata": self.metadata,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": self.previous,
            "reasoning": {"effort": null, "summary": null},
            "store": self.is_stored,
            "temperature": null,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": usage,
        })
    }

    /// Returns the item with the answer.
    pub(super) fn answer_item(&self, text: Option<&str>, status: &str) -> Value {
        let content: Vec<_> = text.map(text_part).into_iter().collect();
        json!({
            "id": self.answer_id(),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        })
    }

    /// Returns the item with the lines about the course of the turn.
    pub(super) fn reasoning_item(&self, text: Option<&str>, status: &str) -> Value {
        let summary: Vec<_> = text.map(summary_part).into_iter().collect();
        json!({
            "id": self.reasoning_id(),
            "type": "reasoning",
            "status": status,
            "summary": summary,
        })
    }

    pub(super) fn answer_id(&self) -> String {
        format!("msg_{}", self.message)
    }

    pub(super) fn reasoning_id(&self) -> String {
        format!("rs_{}", self.message)
    }
}

/// Returns the message of the response with this id.
pub(super) fn message_of(id: &str) -> Option<MessageId> {
    MessageId::new(id.strip_prefix(RESPONSE_PREFIX)?).ok()
}

/// Returns a part of an answer.
pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Returns a part of the lines about the course of a turn.
pub(super) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

fn usage_json(usage: Option<&TurnUsage>) -> Value {
    let turn = usage.map(|usage| usage.turn).unwrap_or_default();
    json!({
        "input_tokens": turn.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": turn.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.prompt_tokens.saturating_add(turn.completion_tokens),
    })
}
