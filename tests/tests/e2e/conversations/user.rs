//! A user of an agent who sees each reply as it crosses the broker, duplicates included.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_bus::{Bus, Consumer, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ContentTrust, Envelope, Executed, InstanceId, Message, MessageId,
    QueueSpec, ReplyBody, RoutingKey, SessionId, UserMessage,
    json::Limits,
    topology::{user_message, user_response},
};
use rockbot_testkit::fixture::{next_delivery, text_message, within_timeout};

pub(super) struct User {
    bus: Arc<dyn Bus>,
    agent: AgentName,
    reply_to: RoutingKey,
    consumer: Consumer,
    /// Messages that were sent.
    sent: Vec<MessageId>,
    /// Replies that were received.
    replies: Vec<AgentReply>,
}

impl User {
    pub(super) async fn connect(bus: Arc<dyn Bus>, agent: AgentName) -> Self {
        let reply_to = user_response(&InstanceId::generate());
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let consumer = bus.consume(Subscription::on_receipt(queue, 256)).await.expect("a queue");
        Self { bus, agent, reply_to, consumer, sent: Vec::new(), replies: Vec::new() }
    }

    pub(super) async fn send(&mut self, session: &SessionId, text: &str) -> MessageId {
        self.publish(session, text, false).await
    }

    pub(super) async fn cancel(&mut self, session: &SessionId) -> MessageId {
        self.publish(session, "", true).await
    }

    async fn publish(&mut self, session: &SessionId, text: &str, cancel: bool) -> MessageId {
        let message = UserMessage { cancel, ..UserMessage::new(session.clone(), text) };
        let envelope = Envelope::from_payload(&message)
            .reply_to(self.reply_to.clone())
            .with_source("user")
            .with_trust(ContentTrust::UserInput);
        let id = envelope.message_id.clone();
        let publication = Publication::mandatory(user_message(&self.agent), envelope);
        self.bus.publish(publication).await.expect("confirmed");
        self.sent.push(id.clone());
        id
    }

    /// Returns the id of the first message that was sent.
    pub(super) fn first_message(&self) -> MessageId {
        self.sent[0].clone()
    }

    /// Returns how many turns were continued by another process.
    pub(super) fn resumptions(&self) -> usize {
        let is_resumed = |reply: &&AgentReply| matches!(reply.body, ReplyBody::Resumed { .. });
        self.replies.iter().filter(is_resumed).count()
    }

    /// Waits for a reply to a message.
    pub(super) async fn reply_to(
        &mut self,
        id: &MessageId,
        what: &str,
        matches: impl Fn(&ReplyBody) -> bool,
    ) -> ReplyBody {
        let is_expected = |reply: &AgentReply| reply.in_reply_to == *id && matches(&reply.body);
        if let Some(reply) = self.replies.iter().find(|reply| is_expected(reply)) {
            return reply.body.clone();
        }
        within_timeout(what, async {
            loop {
                let reply = self.next().await.expect("a reply");
                if is_expected(&reply) {
                    return reply.body;
                }
            }
        })
        .await
    }

    /// Waits until another process continues the turn of a message, and returns its instance.
    pub(super) async fn resumed(&mut self, id: &MessageId) -> InstanceId {
        let is_resumed = |body: &ReplyBody| matches!(body, ReplyBody::Resumed { .. });
        match self.reply_to(id, "a resumed turn", is_resumed).await {
            ReplyBody::Resumed { on, .. } => on,
            other => unreachable!("{other:?}"),
        }
    }

    /// Waits for the final reply to a message.
    pub(super) async fn answer(&mut self, id: &MessageId) -> ReplyBody {
        let is_answer = |body: &ReplyBody| matches!(body, ReplyBody::Answer { .. });
        self.reply_to(id, "an answer", is_answer).await
    }

    /// Receives the next reply; `None` if it is another message.
    async fn next(&mut self) -> Option<AgentReply> {
        let envelope = next_delivery(&mut self.consumer).await.into_envelope();
        if envelope.message_type() != AgentReply::TYPE {
            return None;
        }
        let reply: AgentReply = envelope.decode(Limits::default()).expect("a reply");
        self.replies.push(reply.clone());
        Some(reply)
    }

    /// Fails unless each call that a reply reports as ended has a result.
    #[track_caller]
    pub(super) fn assert_calls_succeeded(&self) {
        for reply in &self.replies {
            if let ReplyBody::ToolFinished { error, executed, .. } = &reply.body {
                assert_eq!((error, executed), (&None, &Executed::Yes), "{reply:#?}");
            }
        }
    }

    /// Receives the remaining replies, and checks that each message has one final reply, and that the
    /// replies of each process are numbered in order. No agent may be running.
    pub(super) async fn check_final_answers(mut self) {
        let end = Publication::mandatory(self.reply_to.clone(), text_message("end"));
        self.bus.publish(end).await.expect("confirmed");
        while self.next().await.is_some() {}
        let mut finals: BTreeMap<_, _> = self.sent.iter().map(|id| (id, 0)).collect();
        let mut last: BTreeMap<_, u64> = BTreeMap::new();
        for reply in &self.replies {
            let base = AgentReply::sequence_base_of(reply.sequence);
            let number = last.insert((&reply.in_reply_to, base), reply.sequence);
            assert!(number.is_none_or(|number| number < reply.sequence), "{:#?}", self.replies);
            *finals.entry(&reply.in_reply_to).or_default() += u32::from(reply.is_final);
        }
        assert!(finals.values().all(|count| *count == 1), "{finals:?}: {:#?}", self.replies);
    }
}
