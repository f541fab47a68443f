//! Final replies on the bus, also those that their reader discards.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use rockbot_bus::{Bus, Settlement, Subscription};
use rockbot_contracts::{
    AgentReply, BindingPattern, QueueSpec, ReplyBody, RoutingKey, json::Limits,
};
use tokio::task::JoinHandle;

/// Outcome and text of the final replies to each message.
pub(super) type FinalReplies = BTreeMap<String, Vec<String>>;

/// Records every final reply. Its queue outlives a disconnect.
pub(super) struct AnswerObserver {
    replies: Arc<Mutex<FinalReplies>>,
    task: JoinHandle<()>,
}

impl AnswerObserver {
    pub(super) async fn start(bus: &Arc<dyn Bus>) -> Self {
        let name = RoutingKey::new("chaos.answers").expect("a name");
        let queue = QueueSpec::reply(&name, vec![BindingPattern::new("user.response.#")]);
        let mut consumer = bus.consume(Subscription::new(queue, 256)).await.expect("subscribed");
        let replies = Arc::<Mutex<FinalReplies>>::default();
        let recorded = replies.clone();
        let task = tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            while let Some(delivery) = consumer.next().await {
                let envelope = delivery.envelope().clone();
                // A failed ack is followed by a redelivery.
                let _ = delivery.settle(Settlement::Ack).await;
                let Ok(reply) = envelope.decode::<AgentReply>(Limits::default()) else { continue };
                if let ReplyBody::Answer { text, outcome, .. } = reply.body
                    && seen.insert(envelope.message_id.to_string())
                {
                    let id = reply.in_reply_to.to_string();
                    let text = format!("{outcome:?}: {text}");
                    recorded.lock().expect("not poisoned").entry(id).or_default().push(text);
                }
            }
        });
        Self { replies, task }
    }

    pub(super) fn replies(&self) -> FinalReplies {
        self.replies.lock().expect("not poisoned").clone()
    }
}

impl Drop for AnswerObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}
