//! A user of an agent who sees each reply as it crosses the broker, duplicates included.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, ApprovalDecision, ContentTrust, Envelope, Executed,
    InstanceId, Message, MessageId, QueueSpec, ReplyBody, RoutingKey, SessionId, UserMessage,
    json::Limits,
    topology::{user_approval, user_message, user_response},
};
use rockbot_testkit::fixture::{TEST_TIMEOUT, next_delivery, text_message, within_timeout};
use tokio::time::timeout;

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

    /// Waits for the request to approve a call of a turn, and returns this decision on it.
    pub(super) async fn approval(
        &mut self,
        session: &SessionId,
        id: &MessageId,
        decision: ApprovalDecision,
    ) -> ApprovalAnswer {
        let is_request = |body: &ReplyBody| matches!(body, ReplyBody::ApprovalAsked { .. });
        match self.reply_to(id, "an approval request", is_request).await {
            ReplyBody::ApprovalAsked { approval_id, call_hash, .. } => {
                let session_id = session.clone();
                ApprovalAnswer { session_id, approval_id, call_hash, decision, reason: None }
            }
            other => unreachable!("{other:?}"),
        }
    }

    pub(super) async fn decide(&self, decision: &ApprovalAnswer) {
        let envelope = Envelope::from_payload(decision)
            .with_source("user")
            .with_trust(ContentTrust::UserInput);
        let publication = Publication::mandatory(user_approval(&self.agent), envelope);
        self.bus.publish(publication).await.expect("confirmed");
    }

    /// Returns how many requests for approval were received.
    pub(super) fn approval_requests(&self) -> usize {
        let is_request =
            |reply: &&AgentReply| matches!(reply.body, ReplyBody::ApprovalAsked { .. });
        self.replies.iter().filter(is_request).count()
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

    /// Fails if a reply arrives within `time`.
    pub(super) async fn expect_no_reply(&mut self, time: Duration) {
        let reply = timeout(time, self.consumer.next()).await;
        assert!(reply.is_err(), "unexpected message: {reply:?}");
    }

    /// Waits for the final reply to a message, up to `limit`.
    pub(super) async fn answer_within(&mut self, limit: Duration, id: &MessageId) -> ReplyBody {
        self.reply_within(limit, id, 1, |reply| reply.is_final).await
    }

    /// Waits for another final reply to a message, which a client that read the first one drops.
    pub(super) async fn second_answer(&mut self, id: &MessageId) -> ReplyBody {
        self.reply_within(TEST_TIMEOUT, id, 2, |reply| reply.is_final).await
    }

    /// Waits until the turn of a message waits for its store, up to `limit`.
    pub(super) async fn suspended_within(&mut self, limit: Duration, id: &MessageId) {
        let is_waiting = |reply: &AgentReply| match &reply.body {
            ReplyBody::TaskStatus { status, .. } => status == "waiting",
            _ => false,
        };
        self.reply_within(limit, id, 1, is_waiting).await;
    }

    /// Waits for the matching reply of this number, from 1.
    async fn reply_within(
        &mut self,
        limit: Duration,
        id: &MessageId,
        number: usize,
        matches: impl Fn(&AgentReply) -> bool,
    ) -> ReplyBody {
        let wait = async {
            loop {
                let is_expected = |reply: &&AgentReply| reply.in_reply_to == *id && matches(reply);
                let mut expected = self.replies.iter().filter(is_expected);
                if let Some(reply) = expected.nth(number - 1) {
                    return reply.body.clone();
                }
                let envelope = self.consumer.next().await.expect("a message").into_envelope();
                self.receive(&envelope).expect("a reply");
            }
        };
        timeout(limit, wait).await.expect("a reply in time")
    }

    /// Receives the next reply; `None` if it is another message.
    async fn next(&mut self) -> Option<AgentReply> {
        let envelope = next_delivery(&mut self.consumer).await.into_envelope();
        self.receive(&envelope)
    }

    fn receive(&mut self, envelope: &Envelope) -> Option<AgentReply> {
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

    /// Fails if two final replies to a message differ. A client drops the second one.
    #[track_caller]
    pub(super) fn assert_equal_answers(&self) {
        for id in &self.sent {
            let finals =
                self.replies.iter().filter(|reply| reply.in_reply_to == *id && reply.is_final);
            let bodies: Vec<_> = finals.map(|reply| &reply.body).collect();
            assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:#?}");
        }
    }

    /// Receives the remaining replies, and checks that each message has one final reply, and that the
    /// other replies of each process are numbered in order: another process may send a recorded answer. No
    /// agent may be running.
    pub(super) async fn check_final_answers(mut self) {
        let end = Publication::mandatory(self.reply_to.clone(), text_message("end"));
        self.bus.publish(end).await.expect("confirmed");
        while self.next().await.is_some() {}
        let mut finals: BTreeMap<_, _> = self.sent.iter().map(|id| (id, 0)).collect();
        let mut last: BTreeMap<_, u64> = BTreeMap::new();
        for reply in &self.replies {
            if reply.is_final {
                *finals.entry(&reply.in_reply_to).or_default() += 1;
                continue;
            }
            let base = AgentReply::sequence_base_of(reply.sequence);
            let number = last.insert((&reply.in_reply_to, base), reply.sequence);
            assert!(number.is_none_or(|number| number < reply.sequence), "{:#?}", self.replies);
        }
        assert!(finals.values().all(|count| *count == 1), "{finals:?}: {:#?}", self.replies);
    }
}
