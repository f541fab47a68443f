//! Users of many conversations, and what they read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rockbot_agent::{AgentClient, ConversationRequestError, Replies, ReplyError, SendError};
use rockbot_bus::Bus;
use rockbot_contracts::{
    AgentName, InstanceId, MessageId, ReplyBody, SessionId, UserMessage,
    conversation::ConversationErrorCode, user::TurnOutcome,
};
use tokio::task::JoinSet;

use super::{agents::AGENT, plan::TurnPlan};
use crate::chaos::timeline::Timeline;

/// Time without a reply after which a user asks for the replies again.
const IDLE: Duration = Duration::from_secs(60);
/// Requests for the replies to one message before it counts as unanswered.
const ADOPTIONS: usize = 4;
/// Pause between two requests for the replies to a message.
const ADOPTION_INTERVAL: Duration = Duration::from_secs(3);
/// Time for which a user repeats a request for replies that fails: longer than the broker takes to start on a
/// machine with other load.
const UNREACHABLE: Duration = Duration::from_secs(180);
/// Pause of a user whose message was not sent.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// Share of the messages whose sender forgets them after the first reply, and asks for the replies again.
const FORGOTTEN: f64 = 0.05;

/// Numbers of conversations.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadSize {
    pub(super) conversations: usize,
    /// Turns that run at a time.
    pub(super) in_flight: usize,
}

/// A message and its answer, as its sender knows them.
#[derive(Debug, Clone)]
pub(super) struct TurnRecord {
    pub(super) plan: TurnPlan,
    pub(super) session: SessionId,
    /// `None` if the broker may have the message without a confirm.
    pub(super) id: Option<MessageId>,
    pub(super) sent: Duration,
    pub(super) answer: Option<ReadAnswer>,
    /// Continuations by another process that the sender read.
    pub(super) resumed: usize,
    /// Requests for the replies.
    pub(super) adopted: usize,
    /// The agent said that it has no such message: it expired before a process could record it.
    pub(super) is_expired: bool,
    /// Longest time between two replies.
    pub(super) silence: Duration,
    /// Errors of the client.
    pub(super) errors: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct ReadAnswer {
    pub(super) at: Duration,
    pub(super) outcome: TurnOutcome,
    pub(super) text: String,
}

/// The users of a run.
pub(super) struct Load {
    seed: u64,
    size: LoadSize,
    agent: AgentName,
    client: AgentClient,
    timeline: Arc<Timeline>,
    records: Mutex<BTreeMap<(usize, usize), TurnRecord>>,
}

/// A conversation and its state.
struct Conversation {
    number: usize,
    session: SessionId,
    messages: usize,
    random: StdRng,
}

impl Load {
    pub(super) async fn start(
        seed: u64,
        size: LoadSize,
        bus: Arc<dyn Bus>,
        timeline: Arc<Timeline>,
    ) -> Self {
        let instance = InstanceId::generate();
        let client = AgentClient::connect(bus, &instance).await.expect("a reply queue");
        let agent = AgentName::new(AGENT).expect("a name");
        let client = client.with_idle_timeout(IDLE);
        Self { seed, size, agent, client, timeline, records: Mutex::default() }
    }

    /// Returns the records of all messages so far.
    pub(super) fn records(&self) -> Vec<TurnRecord> {
        self.records.lock().expect("not poisoned").values().cloned().collect()
    }

    /// Keeps turns in flight until `end`, and returns when each message has its answer.
    pub(super) async fn run(self: Arc<Self>, end: Duration) {
        let mut tasks = JoinSet::new();
        let LoadSize { conversations, in_flight } = self.size;
        for first in 0..in_flight {
            let load = self.clone();
            let numbers = (first..conversations).step_by(in_flight);
            let mut own: Vec<_> = numbers.map(|number| self.conversation(number)).collect();
            tasks.spawn(async move {
                for index in (0..own.len()).cycle() {
                    if load.timeline.now() >= end {
                        return;
                    }
                    load.turn(&mut own[index]).await;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    }

    fn conversation(&self, number: usize) -> Conversation {
        // A seed of its own for each conversation, in any order of the tasks.
        let random = StdRng::seed_from_u64(self.seed ^ ((number as u64 + 1) << 32));
        Conversation { number, session: SessionId::generate(), messages: 0, random }
    }

    /// Sends a message and reads its replies. A conversation whose message may or may not have arrived is
    /// replaced by a new one.
    async fn turn(&self, conversation: &mut Conversation) {
        conversation.messages += 1;
        let Conversation { number, messages, .. } = *conversation;
        let plan = TurnPlan::random(number, messages, &mut conversation.random);
        let key = (number, messages);
        let forgets = conversation.random.random_bool(FORGOTTEN);
        let record = TurnRecord {
            plan: plan.clone(),
            session: conversation.session.clone(),
            id: None,
            sent: self.timeline.now(),
            answer: None,
            resumed: 0,
            adopted: 0,
            is_expired: false,
            silence: Duration::ZERO,
            errors: Vec::new(),
        };
        self.records.lock().expect("not poisoned").insert(key, record);
        let is_ended = match self.send(key, &conversation.session, &plan).await {
            Some(replies) => self.read(key, &conversation.session, replies, forgets).await,
            None => false,
        };
        if !is_ended {
            // Later messages would be added to a turn that may run.
            conversation.number += self.size.conversations;
            conversation.messages = 0;
            conversation.session = SessionId::generate();
        }
    }

    async fn send(
        &self,
        key: (usize, usize),
        session: &SessionId,
        plan: &TurnPlan,
    ) -> Option<Replies> {
        let message = UserMessage::new(session.clone(), plan.text());
        loop {
            match self.client.send(&self.agent, &message).await {
                Ok(replies) => {
                    let id = replies.message_id().clone();
                    self.update(key, |record| record.id = Some(id));
                    return Some(replies);
                }
                Err(error) => {
                    let may_have_arrived = may_have_arrived(&error);
                    self.update(key, |record| record.errors.push(format!("send: {error}")));
                    if may_have_arrived {
                        return None;
                    }
                }
            }
            self.timeline.pass(RESEND_INTERVAL).await;
        }
    }

    /// Reads replies until the answer. A message without replies is adopted, as after a restart of its
    /// sender. Returns `false` if its turn may still run.
    async fn read(
        &self,
        key: (usize, usize),
        session: &SessionId,
        mut replies: Replies,
        mut forgets: bool,
    ) -> bool {
        let id = replies.message_id().clone();
        for _ in 0..=ADOPTIONS {
            match self.read_replies(key, &mut replies, forgets).await {
                Ok(true) => return true,
                Ok(false) => forgets = false,
                Err(error) => {
                    self.update(key, |record| record.errors.push(format!("read: {error}")));
                    self.timeline.pass(ADOPTION_INTERVAL).await;
                }
            }
            self.update(key, |record| record.adopted += 1);
            drop(replies);
            replies = match self.adopt(key, session, &id).await {
                Some(replies) => replies,
                None => return self.is_expired(key),
            };
        }
        false
    }

    /// Asks for the replies to a message. Returns `None` if the agent has no such message, or could not be
    /// asked for long.
    async fn adopt(
        &self,
        key: (usize, usize),
        session: &SessionId,
        id: &MessageId,
    ) -> Option<Replies> {
        let limit = self.timeline.now() + UNREACHABLE;
        let mut was_missing = false;
        loop {
            let error = match self.client.adopt(&self.agent, session, id).await {
                Ok(replies) => return Some(replies),
                Err(error) => error,
            };
            let is_missing = is_not_found(&error);
            // A process may be about to record it.
            let is_expired = was_missing && is_missing;
            was_missing = is_missing;
            self.update(key, |record| {
                record.errors.push(format!("adopt: {error}"));
                record.is_expired = is_expired;
            });
            if is_expired || self.timeline.now() > limit {
                return None;
            }
            self.timeline.pass(ADOPTION_INTERVAL).await;
        }
    }

    fn is_expired(&self, key: (usize, usize)) -> bool {
        let records = self.records.lock().expect("not poisoned");
        records.get(&key).is_some_and(|record| record.is_expired)
    }

    /// Returns whether the answer arrived; `false` if it stopped after the first reply.
    async fn read_replies(
        &self,
        key: (usize, usize),
        replies: &mut Replies,
        only_first: bool,
    ) -> Result<bool, ReplyError> {
        let mut last = self.timeline.now();
        while let Some(reply) = replies.next().await {
            let reply = reply?;
            let now = self.timeline.now();
            let silence = now.saturating_sub(last);
            last = now;
            self.update(key, |record| {
                record.silence = record.silence.max(silence);
                match reply.body {
                    ReplyBody::Resumed { .. } => record.resumed += 1,
                    ReplyBody::Answer { text, outcome, .. } => {
                        record.answer = Some(ReadAnswer { at: now, outcome, text });
                    }
                    _ => {}
                }
            });
            if reply.is_final {
                return Ok(true);
            }
            if only_first {
                return Ok(false);
            }
        }
        Err(ReplyError::Closed)
    }

    fn update(&self, key: (usize, usize), change: impl FnOnce(&mut TurnRecord)) {
        if let Some(record) = self.records.lock().expect("not poisoned").get_mut(&key) {
            change(record);
        }
    }
}

/// Returns whether the agent has no such message.
fn is_not_found(error: &ConversationRequestError) -> bool {
    matches!(error, ConversationRequestError::Refused { code: ConversationErrorCode::NotFound, .. })
}

/// Returns whether the agent may have the message in spite of the error.
fn may_have_arrived(error: &SendError) -> bool {
    use rockbot_bus::PublishError;
    matches!(error, SendError::Publish(PublishError::Unconfirmed { .. }))
}
