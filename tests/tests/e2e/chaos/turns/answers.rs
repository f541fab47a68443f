//! Final replies on the bus, also those that their reader discards.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use rockbot_bus::Bus;
use rockbot_contracts::{AgentReply, Envelope, ReplyBody, json::Limits};

use crate::chaos::observer::CopyQueue;

/// Outcome and text of the final replies to each message.
pub(super) type FinalReplies = BTreeMap<String, Vec<String>>;

/// Records every final reply.
pub(super) struct AnswerObserver {
    replies: Arc<Mutex<FinalReplies>>,
    _queue: CopyQueue,
}

impl AnswerObserver {
    pub(super) async fn start(bus: &Arc<dyn Bus>) -> Self {
        let replies = Arc::<Mutex<FinalReplies>>::default();
        let recorded = replies.clone();
        let record = move |envelope: &Envelope| {
            let Ok(reply) = envelope.decode::<AgentReply>(Limits::default()) else { return };
            if let ReplyBody::Answer { text, outcome, .. } = reply.body {
                let id = reply.in_reply_to.to_string();
                let text = format!("{outcome:?}: {text}");
                recorded.lock().expect("not poisoned").entry(id).or_default().push(text);
            }
        };
        let queue = CopyQueue::start(bus, "chaos.answers", "user.response.#", record).await;
        Self { replies, _queue: queue }
    }

    pub(super) fn replies(&self) -> FinalReplies {
        self.replies.lock().expect("not poisoned").clone()
    }
}
