//! The history of a conversation, for people.

use std::collections::HashMap;

use rockbot_contracts::{
    ApprovalDecision, ToolCallId,
    conversation::{HistoryBody, HistoryCall, HistoryItem},
};

use super::{
    entry::{ConversationEntry, RecordedEntry},
    error::EntryProblem,
};

/// Size of the texts at which a page ends, in bytes.
const MAX_PAGE_TEXT: usize = 1024 * 1024;

/// Collects a page of items.
pub(super) struct HistoryItems {
    limit: usize,
    items: Vec<HistoryItem>,
    text_bytes: usize,
    tool_names: HashMap<ToolCallId, String>,
}

impl HistoryItems {
    /// Creates an empty page of at most `limit` items.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, items: Vec::new(), text_bytes: 0, tool_names: HashMap::new() }
    }

    /// Returns the number of items that the page still takes.
    pub(super) fn remaining(&self) -> usize {
        self.limit - self.items.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= self.limit || self.text_bytes >= MAX_PAGE_TEXT
    }

    /// Adds an entry, unless the page is full.
    pub(super) fn push(&mut self, number: u64, decoded: Result<RecordedEntry, EntryProblem>) {
        if self.is_full() {
            return;
        }
        let (at_ms, body) = match decoded {
            Ok(recorded) => (Some(recorded.at), self.body(recorded.entry)),
            Err(_) => (None, Some(HistoryBody::Other)),
        };
        if let Some(body) = body {
            self.text_bytes += text_bytes(&body);
            self.items.push(HistoryItem { number, at_ms, body });
        }
    }

    pub(super) fn finish(self) -> Vec<HistoryItem> {
        self.items
    }

    fn body(&mut self, entry: ConversationEntry) -> Option<HistoryBody> {
        Some(match entry {
            ConversationEntry::Message(message) => {
                HistoryBody::Message { message_id: Some(message.id), text: message.text }
            }
            ConversationEntry::Steer(steer) => {
                HistoryBody::Steered { message_id: Some(steer.id), text: steer.text }
            }
            ConversationEntry::Cancel(_) => HistoryBody::Cancelled {},
            ConversationEntry::Model(model) => {
                let calls = model.calls.into_iter().map(|call| {
                    self.tool_names.insert(call.call.clone(), call.name.clone());
                    HistoryCall {
                        tool_call_id: call.call,
                        tool_name: call.name,
                        arguments: call.arguments,
                    }
                });
                HistoryBody::Model { text: model.text, calls: calls.collect() }
            }
            ConversationEntry::Result(result) => HistoryBody::Result {
                tool_name: self.tool_names.get(&result.call).cloned(),
                tool_call_id: result.call,
                text: result.text,
                error: result.error,
                executed: Some(result.executed),
            },
            ConversationEntry::ApprovalRequest(request) => HistoryBody::ApprovalAsked {
                tool_name: self.tool_names.get(&request.call).cloned(),
                tool_call_id: request.call,
            },
            ConversationEntry::Decision(decision) => {
                HistoryBody::Decided { decision: decision_text(decision.decision).to_owned() }
            }
            ConversationEntry::Answer(answer) => HistoryBody::Answer {
                text: answer.text,
                outcome: answer.outcome,
                usage: Some(answer.usage),
            },
            ConversationEntry::Feedback(feedback) => HistoryBody::Feedback {
                message_id: feedback.id,
                rating: feedback.rating,
                comment: feedback.comment,
            },
            // It follows the takeover itself.
            ConversationEntry::Takeover(takeover) if takeover.is_active => return None,
            ConversationEntry::Takeover(takeover) => {
                HistoryBody::Resumed { on: takeover.instance, attempt: takeover.attempt }
            }
            ConversationEntry::Checkpoint(_) | ConversationEntry::Released(_) => return None,
        })
    }
}

fn decision_text(decision: Option<ApprovalDecision>) -> &'static str {
    match decision {
        Some(ApprovalDecision::Allow) => "allow",
        Some(ApprovalDecision::AllowInSession) => "allow_in_session",
        Some(_) => "deny",
        None => "expired",
    }
}

fn text_bytes(body: &HistoryBody) -> usize {
    match body {
        HistoryBody::Message { text, .. }
        | HistoryBody::Steered { text, .. }
        | HistoryBody::Result { text, .. }
        | HistoryBody::Answer { text, .. } => text.len(),
        HistoryBody::Model { text, calls } => {
            text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>()
        }
        HistoryBody::Feedback { comment, .. } => comment.len(),
        _ => 0,
    }
}
