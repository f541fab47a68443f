//! Messages under way: sends each once, receives its replies, and publishes them as events.

use std::sync::Arc;

use parking_lot::Mutex;
use rockbot_agent::{AgentClient, Replies, ReplyError, SendError};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, InputAnswer, MessageId, SessionId, UserMessage,
    user::ReplyDetail,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::{
    event::EventBody,
    hub::{Hub, Position},
    joined_text::JoinedText,
    key_locks::KeyLocks,
    open_turns::OpenTurns,
    records::{Owner, Record, Records, SentMessage, digest},
};
use crate::{
    api::{problem::Problem, schema::SpendingView},
    clock::now_ms,
};

/// A conversation of a person with an agent.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) owner: Owner,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
}

/// The text of a message.
#[derive(Debug, Clone)]
pub(crate) struct NewText {
    pub(crate) text: String,
    /// Its client shows requests for input to a person.
    pub(crate) accepts_input: bool,
}

/// Outcome of a request to send a message.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) message: MessageId,
    /// The message had been sent before.
    pub(crate) repeated: bool,
}

/// The messages under way. Clones share them.
#[derive(Clone)]
pub(crate) struct Turns {
    client: Arc<AgentClient>,
    hub: Arc<Hub>,
    records: Records,
    state: Arc<Mutex<OpenTurns>>,
    sending: KeyLocks,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Turns {
    /// Creates the messages of one process, whose replies are received until `stop` is cancelled. The turns go on
    /// then.
    pub(crate) fn new(
        client: Arc<AgentClient>,
        hub: Arc<Hub>,
        records: Records,
        stop: CancellationToken,
    ) -> Self {
        let turns = Self {
            client,
            hub,
            records,
            state: Arc::default(),
            sending: KeyLocks::default(),
            tasks: TaskTracker::new(),
            stop,
        };
        turns.receive_follow_ups();
        turns
    }

    /// Publishes what arrives without a waiting message: progress and results of work that agents delegated,
    /// and approval requests of its calls. Only in conversations that this process sent a message to, and only
    /// from their agent.
    fn receive_follow_ups(&self) {
        let Some(mut follow_ups) = self.client.follow_ups() else { return };
        let turns = self.clone();
        self.tasks.spawn(async move {
            while let Some(Some(reply)) = turns.stop.run_until_cancelled(follow_ups.next()).await {
                let AgentReply { session_id, in_reply_to, agent, body, .. } = reply;
                let Some(body) = EventBody::from_reply(body, now_ms()) else { continue };
                let body = {
                    let mut state = turns.state.lock();
                    if !state.is_conversation_of(&session_id, &agent) {
                        continue;
                    }
                    state.record_further(&in_reply_to, &session_id, body)
                };
                turns.hub.publish(&session_id, Some(&in_reply_to), body);
            }
        });
    }

    pub(crate) fn client(&self) -> &AgentClient {
        &self.client
    }

    /// Sends a message once for its key, however often it is requested. The message is taken over by a task, so
    /// that a dropped request leaves no message half-sent.
    pub(crate) async fn send(
        &self,
        conversation: &Conversation,
        key: String,
        new: NewText,
    ) -> Result<Sent, Problem> {
        let (turns, conversation) = (self.clone(), conversation.clone());
        let task = self.tasks.spawn(async move {
            let lock = turns.sending.lock_of(&conversation.owner, &key);
            let _sending = lock.acquire().await;
            turns.send_once(&conversation, &key, &new).await
        });
        let sent = task.await;
        sent.unwrap_or_else(|_| {
            Err(Problem::unavailable("the gateway stops; send the message again").maybe_executed())
        })
    }

    async fn send_once(
        &self,
        conversation: &Conversation,
        key: &str,
        new: &NewText,
    ) -> Result<Sent, Problem> {
        let Conversation { owner, session, .. } = conversation;
        let message = SentMessage {
            id: MessageId::generate(),
            conversation: session.clone(),
            text: digest(&new.text),
            answered: false,
        };
        let (known, is_new) = self.records.remember(owner, key, message.clone()).await?;
        if known.conversation != message.conversation || known.text != message.text {
            let detail = "this Idempotency-Key belongs to another message; use a new key";
            return Err(Problem::conflict("conflict", detail).not_executed());
        }
        let id = known.id.clone();
        let repeated = Sent { message: id.clone(), repeated: !is_new };
        if known.answered || self.state.lock().knows(&id) {
            return Ok(repeated);
        }
        let sent = self.start(conversation, key, new, known).await;
        if let Err(error) = sent {
            // After an unconfirmed publish the agent may have it: a repeated request sends it again.
            let problem = Problem::from_send(&error);
            let problem = if is_new { problem } else { problem.maybe_executed() };
            let body =
                EventBody::Failed { code: "agent_unavailable".into(), text: error.to_string() };
            self.hub.publish(session, Some(&id), body);
            if is_new && !error.may_have_arrived() {
                self.records.forget(owner, key).await?;
            }
            return Err(problem);
        }
        Ok(repeated)
    }

    /// Sends a message and spawns the task that receives its replies.
    async fn start(
        &self,
        conversation: &Conversation,
        key: &str,
        new: &NewText,
        message: SentMessage,
    ) -> Result<(), SendError> {
        let Conversation { agent, session, .. } = conversation;
        let id = message.id.clone();
        let start = self.hub.now();
        self.state.lock().talk(session, agent);
        if !self.state.lock().add(&id, session, Some(start)) {
            return Err(SendError::TooManyPending);
        }
        let body = EventBody::Message { text: new.text.clone(), key: key.to_owned() };
        self.hub.publish(session, Some(&id), body);
        let mut user_message = UserMessage::new(session.clone(), new.text.as_str());
        user_message.detail = ReplyDetail::Full;
        user_message.accepts_input = new.accepts_input;
        let sent = self.client.send_with_id(agent, &user_message, id.clone()).await;
        match sent {
            Ok(replies) => {
                let remembered = Some((key.to_owned(), message));
                self.receive(conversation.clone(), replies, remembered);
                Ok(())
            }
            Err(error) => {
                self.state.lock().remove(&id);
                Err(error)
            }
        }
    }

    /// Receives the replies to a message that an earlier process sent, unless this one does already.
    /// A task does so, so that a dropped request leaves no message open.
    pub(crate) async fn adopt(&self, conversation: &Conversation, message: &MessageId) {
        let (turns, conversation) = (self.clone(), conversation.clone());
        let message = message.clone();
        let task = self.tasks.spawn(async move { turns.adopt_once(&conversation, &message).await });
        if let Err(error) = task.await {
            warn!(%error, "open message not adopted");
        }
    }

    async fn adopt_once(&self, conversation: &Conversation, message: &MessageId) {
        let Conversation { agent, session, .. } = conversation;
        {
            let mut state = self.state.lock();
            state.talk(session, agent);
            if state.knows(message) || !state.add(message, session, None) {
                return;
            }
        }
        match self.client.adopt(agent, session, message).await {
            Ok(replies) => self.receive(conversation.clone(), replies, None),
            Err(error) => {
                warn!(session_id = %session, %error, "open message not adopted");
                self.state.lock().remove(message);
            }
        }
    }

    /// Cancels the running turn.
    pub(crate) async fn cancel(&self, conversation: &Conversation) -> Result<(), Problem> {
        let message = UserMessage::cancelling(conversation.session.clone());
        let sent = self.client.send(&conversation.agent, &message).await;
        // The answer arrives as that of the cancelled message.
        sent.map(drop).map_err(|error| Problem::from_send(&error))
    }

    /// Sends a person's decision on an approval request.
    pub(crate) async fn decide(
        &self,
        conversation: &Conversation,
        person: &Arc<str>,
        answer: ApprovalAnswer,
    ) -> Result<(), Problem> {
        let checked = self.state.lock().check_approval(&conversation.session, &answer);
        checked.map_err(Problem::not_executed)?;
        let (approval_id, decision) = (&answer.approval_id, answer.decision);
        // The agent may close the request before the broker confirms the decision.
        self.state.lock().decided(approval_id, person);
        let sent = self.client.answer_approval(&conversation.agent, &answer).await;
        if let Err(error) = sent {
            if !error.may_have_arrived() {
                self.state.lock().undecided(approval_id, person);
            }
            return Err(Problem::from_send(&error));
        }
        info!(%approval_id, ?decision, by = %person, "decision on an approval request sent");
        Ok(())
    }

    /// Sends a person's response to a request for input.
    pub(crate) async fn answer_input(
        &self,
        conversation: &Conversation,
        person: &Arc<str>,
        answer: InputAnswer,
    ) -> Result<(), Problem> {
        let checked = self.state.lock().check_input(&conversation.session, &answer);
        checked.map_err(Problem::not_executed)?;
        let sent = self.client.answer_input(&conversation.agent, &answer).await;
        sent.map_err(|error| Problem::from_send(&error))?;
        let (input_id, action) = (&answer.input_id, answer.response.action);
        info!(%input_id, ?action, by = %person, "response to a request for input sent");
        Ok(())
    }

    /// Returns whether a message of the conversation has no answer.
    pub(crate) fn is_running(&self, session: &SessionId) -> bool {
        !self.running(session).is_empty()
    }

    /// Returns the number of open approval requests of a conversation.
    pub(crate) fn open_approvals(&self, session: &SessionId) -> usize {
        self.state.lock().approvals(session)
    }

    /// See [`OpenTurns::running`].
    pub(crate) fn running(&self, session: &SessionId) -> Vec<(MessageId, Option<Position>)> {
        self.state.lock().running(session)
    }

    fn receive(
        &self,
        conversation: Conversation,
        replies: Replies,
        remembered: Option<(String, SentMessage)>,
    ) {
        let turns = self.clone();
        self.tasks.spawn(async move {
            let message = replies.message_id().clone();
            let publishing = turns.publish_replies(&conversation, replies);
            let is_answered = turns.stop.run_until_cancelled(publishing).await.unwrap_or(false);
            turns.state.lock().end(&message, is_answered);
            if let (true, Some((key, sent))) = (is_answered, remembered) {
                let marked = turns.records.mark_answered(&conversation.owner, &key, sent).await;
                if let Err(error) = marked {
                    warn!(%error, "answered message not marked");
                }
            }
        });
    }

    /// Publishes the replies to a message until its turn ends. Returns whether it was answered.
    async fn publish_replies(&self, conversation: &Conversation, mut replies: Replies) -> bool {
        let message = replies.message_id().clone();
        let mut text = JoinedText::default();
        let mut lost = 0;
        loop {
            let reply = tokio::select! {
                reply = replies.next() => reply,
                () = text.due() => {
                    self.publish(conversation, &message, text.take());
                    continue;
                }
            };
            let missing = replies.lost() - lost;
            lost = replies.lost();
            if missing > 0 {
                self.publish(conversation, &message, text.take());
                self.publish(conversation, &message, Some(EventBody::Lost { count: missing }));
            }
            let body = match reply {
                Some(Ok(reply)) => EventBody::from_reply(reply.body, now_ms()),
                Some(Err(error)) => Some(failed(&error)),
                None => return false,
            };
            match body {
                Some(EventBody::TextDelta { text: more }) => {
                    if let Some(full) = text.push(&more) {
                        self.publish(conversation, &message, Some(full));
                    }
                }
                Some(body) => {
                    self.publish(conversation, &message, text.take());
                    if let Some(is_answered) = self.handle(conversation, &message, body).await {
                        return is_answered;
                    }
                }
                None => {}
            }
        }
    }

    /// Publishes an event other than text. Returns whether the message was answered once its turn ended here.
    async fn handle(
        &self,
        conversation: &Conversation,
        message: &MessageId,
        body: EventBody,
    ) -> Option<bool> {
        let body = self.state.lock().record(message, body);
        if matches!(body, EventBody::Steered {}) {
            self.publish(conversation, message, Some(body));
            // The turn that it was added to has the answer, if its replies arrive here.
            return self.state.lock().is_added(message).then_some(true);
        }
        let is_end = body.ends_turn();
        let is_answer = matches!(body, EventBody::Answer { .. });
        if let EventBody::Answer { usage, .. } = &body {
            let usage = usage.as_ref().map(|usage| usage.session);
            self.record_answer(conversation, usage).await;
        }
        self.publish(conversation, message, Some(body));
        is_end.then_some(is_answer)
    }

    async fn record_answer(&self, conversation: &Conversation, usage: Option<SpendingView>) {
        let Conversation { owner, session, .. } = conversation;
        let change = |record: &mut Record| {
            record.turns += 1;
            record.usage = usage.or(record.usage);
            record.last_active_ms = now_ms();
        };
        if let Err(error) = self.records.update(owner, session, change).await {
            warn!(%error, "answer not recorded in the list of conversations");
        }
    }

    fn publish(&self, conversation: &Conversation, message: &MessageId, body: Option<EventBody>) {
        if let Some(body) = body {
            self.hub.publish(&conversation.session, Some(message), body);
        }
    }
}

fn failed(error: &ReplyError) -> EventBody {
    let code = match error {
        ReplyError::Silent { .. } => "silent",
        ReplyError::Closed => "closed",
    };
    EventBody::Failed { code: code.to_owned(), text: error.to_string() }
}
