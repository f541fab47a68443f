//! Arguments and results of calls, apart from the calls: they are kept for a shorter time, and need a right of
//! their own.

use std::collections::{HashMap, VecDeque};

use rockbot_contracts::ToolCallId;
use rockbot_monitor::{CallMessage, MessageKind};
use serde::Serialize;
use utoipa::ToSchema;

/// Size of all kept content, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Size that is added for each call, in bytes.
const ENTRY_BYTES: usize = 256;

/// Content of a call: each text has at most 4 KiB, and ends with an ellipsis if it was longer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContentView {
    /// The arguments as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    /// The last line of progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress_text: Option<String>,
    /// The reason of the cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_reason: Option<String>,
    /// The result or the error as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

impl ContentView {
    fn bytes(&self) -> usize {
        let texts = [&self.arguments, &self.progress_text, &self.cancel_reason, &self.result];
        ENTRY_BYTES + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// The content of the latest calls.
#[derive(Debug, Default)]
pub(super) struct Contents {
    by_call: HashMap<ToolCallId, ContentView>,
    /// In the order of their first content.
    order: VecDeque<ToolCallId>,
    bytes: usize,
}

impl Contents {
    /// Takes the content out of a message and keeps it.
    pub(super) fn take(&mut self, message: &mut CallMessage) {
        let mut new = ContentView::default();
        match &mut message.kind {
            MessageKind::Request(request) => new.arguments = request.arguments.take(),
            MessageKind::Progress(progress) => new.progress_text = progress.text.take(),
            MessageKind::Cancel { reason } => new.cancel_reason = reason.take(),
            MessageKind::Reply(reply) => new.result = reply.result.take(),
        }
        if new == ContentView::default() {
            return;
        }
        if !self.by_call.contains_key(&message.call) {
            self.order.push_back(message.call.clone());
            self.bytes += ENTRY_BYTES;
        }
        let kept = self.by_call.entry(message.call.clone()).or_default();
        let before = kept.bytes();
        // Requests and replies of further attempts are the same.
        kept.arguments = kept.arguments.take().or(new.arguments);
        kept.progress_text = new.progress_text.or(kept.progress_text.take());
        kept.cancel_reason = kept.cancel_reason.take().or(new.cancel_reason);
        kept.result = kept.result.take().or(new.result);
        self.bytes = self.bytes + kept.bytes() - before;
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            let dropped = self.by_call.remove(&oldest);
            self.bytes -= dropped.map_or(0, |content| content.bytes());
        }
    }

    pub(super) fn get(&self, call: &ToolCallId) -> Option<&ContentView> {
        self.by_call.get(call)
    }
}

#[cfg(test)]
mod tests {
    use rockbot_monitor::message::ProgressInfo;

    use super::*;

    fn progress(call: &str, text: String) -> CallMessage {
        let kind =
            MessageKind::Progress(ProgressInfo { sequence: 1, handler: None, text: Some(text) });
        CallMessage {
            call: ToolCallId::new(call).unwrap(),
            tool: None,
            agent: None,
            trace: None,
            bytes: 0,
            kind,
        }
    }

    #[test]
    fn content_leaves_the_message_and_the_oldest_is_dropped() {
        let mut contents = Contents::default();
        let kept = MAX_BYTES / (4096 + ENTRY_BYTES);
        for number in 0..=kept {
            let mut message = progress(&number.to_string(), "x".repeat(4096));
            contents.take(&mut message);
            assert!(matches!(message.kind, MessageKind::Progress(info) if info.text.is_none()));
        }
        let is_kept =
            |number: usize| contents.get(&ToolCallId::new(number.to_string()).unwrap()).is_some();
        assert_eq!([0, 1, kept].map(is_kept), [false, true, true]);
        assert!(contents.bytes <= MAX_BYTES);
        let sum: usize = contents.by_call.values().map(ContentView::bytes).sum();
        assert_eq!(contents.bytes, sum);
    }
}
