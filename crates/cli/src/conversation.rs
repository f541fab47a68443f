//! A chat conversation: sends a message to an agent and prints its replies as they arrive.

mod calls;
mod display;
mod held_replies;
mod printer;
mod status;
mod turn;

use std::{future::pending, time::Duration};

use rockbot_agent::{AgentClient, Replies};
use rockbot_contracts::{
    AgentName, AgentReply, ContentBlock, ConversationRequest, ConversationResponse, MessageId,
    ReplyBody, SessionId, TurnUsage, UserMessage, user::TurnOutcome,
};
use rockbot_service::{Interrupt, Interrupts, exit};
use tokio::{
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

pub(crate) use self::{
    calls::CallLog,
    display::{Display, Show},
};
use self::{held_replies::HeldReplies, turn::RunningTurn};
use crate::{
    approval::{self, Closing, Decided},
    failure::{Failure, OrExit},
    follow_ups::{self, Background},
};

/// The time limit for cancelling a turn when the process is about to exit.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// The time limit for the result of delegated work after the last of it ran: longer than the longest tool call
/// of the turn that reads the result.
const RESULT_LIMIT: Duration = Duration::from_secs(11 * 60);

/// A conversation with an agent.
pub(crate) struct Conversation {
    pub(crate) client: AgentClient,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) display: Display,
    /// Replies that answer no message.
    background: Mutex<Background>,
    /// The last calls of this process.
    pub(crate) log: Mutex<CallLog>,
}

/// The result of one message.
pub(crate) struct TurnResult {
    /// `None` when the user stopped waiting for the answer.
    pub(crate) outcome: Option<TurnOutcome>,
    /// The number of calls that crossed the bus.
    pub(crate) calls: usize,
    /// Set when a signal asked the process to exit.
    pub(crate) exit_requested: bool,
    /// Spending, if the agent reported it.
    pub(crate) usage: Option<TurnUsage>,
}

impl Conversation {
    pub(crate) fn new(
        client: AgentClient,
        agent: AgentName,
        session: SessionId,
        display: Display,
    ) -> Self {
        let background = Mutex::new(Background::new(&client, session.clone()));
        Self { client, agent, session, display, background, log: Mutex::default() }
    }

    /// Continues with a new conversation. Replies to the earlier one are no longer shown.
    pub(crate) async fn restart(&mut self, agent: AgentName) {
        self.agent = agent;
        self.session = SessionId::generate();
        self.background.lock().await.restart(self.session.clone());
        *self.log.lock().await = CallLog::default();
    }

    /// Sends a message with these images, prints the replies, and returns when the answer is complete. Ctrl-C cancels the
    /// turn and waits for its answer; a second Ctrl-C stops waiting. A signal to exit waits for 10 s.
    pub(crate) async fn send(
        &self,
        text: &str,
        images: Vec<ContentBlock>,
        interrupts: &mut Interrupts,
    ) -> Result<TurnResult, Failure> {
        let message = UserMessage {
            media: images,
            detail: self.display.detail(),
            accepts_input: approval::can_ask(),
            ..UserMessage::new(self.session.clone(), text)
        };
        let replies = self.client.send(&self.agent, &message).await.or_exit(exit::UNAVAILABLE)?;
        self.follow(replies, interrupts).await
    }

    /// Receives the replies to a message that another process sent, and returns like
    /// [`send`](Self::send) when the answer is complete.
    pub(crate) async fn adopt(
        &self,
        message: &MessageId,
        interrupts: &mut Interrupts,
    ) -> Result<TurnResult, Failure> {
        let replies = self.client.adopt(&self.agent, &self.session, message).await;
        self.follow(replies?, interrupts).await
    }

    /// Prints the replies to a message until the answer is complete.
    async fn follow(
        &self,
        replies: Replies,
        interrupts: &mut Interrupts,
    ) -> Result<TurnResult, Failure> {
        let mut replies = HeldReplies::new(replies);
        let mut background = self.background.lock().await;
        let mut log = self.log.lock().await;
        let mut turn = RunningTurn::new(self);
        loop {
            let exit_at = turn.exit_at;
            let reply = tokio::select! {
                reply = replies.next() => reply,
                reply = background.next() => {
                    turn.end_line()?;
                    self.show(&reply.body).await?;
                    continue;
                }
                () = turn.next_frame() => {
                    turn.draw_status();
                    continue;
                }
                interrupt = next_interrupt(interrupts, exit_at) => {
                    if turn.interrupt(interrupt).await? {
                        return Ok(turn.end(None));
                    }
                    continue;
                }
            };
            let Some(reply) = reply else {
                return Err(Failure::unavailable("the agent stopped before it answered"));
            };
            let reply = reply.or_exit(exit::TEMPORARY)?;
            turn.print(&reply.body, replies.lost(), &mut log)?;
            background.observe(&reply.body);
            match &reply.body {
                ReplyBody::ApprovalAsked { .. } => {
                    turn.decide(&reply.body, &mut replies, interrupts).await?;
                }
                ReplyBody::InputAsked { .. } => {
                    turn.answer(&reply.body, &mut replies, interrupts).await?;
                }
                ReplyBody::Answer { outcome, .. } => return Ok(turn.end(Some(*outcome))),
                _ => {}
            }
        }
    }

    /// Prints a reply that answers no message, and asks the user for a decision that it requests.
    pub(crate) async fn show(&self, body: &ReplyBody) -> Result<(), Failure> {
        follow_ups::print(body, self.display.json)?;
        let files = self.display.files.as_deref();
        let decided =
            approval::request_decision(body, &self.session, files, &Closing::default()).await;
        // Ctrl-C leaves the request open: it expires, and the call is denied.
        if let Decided::Answer(decision) = decided {
            let answered = self.client.answer_approval(&self.agent, &decision).await;
            answered.or_exit(exit::UNAVAILABLE)?;
        }
        Ok(())
    }

    /// Waits for the next reply that answers no message.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(crate) async fn next_background(&self) -> AgentReply {
        self.background.lock().await.next().await
    }

    /// Expects the results of work that was delegated in another process.
    pub(crate) async fn expect_background(&self, count: usize) {
        self.background.lock().await.expect(count);
    }

    /// Prints replies until no further results of delegated work are expected, or an interrupt.
    ///
    /// # Errors
    /// When there was no reply, and no work ran, for 11 minutes: a result was lost.
    pub(crate) async fn await_background(
        &self,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        while self.expects_results().await {
            tokio::select! {
                reply = self.next_background() => self.show(&reply.body).await?,
                () = follow_ups::idle_for(RESULT_LIMIT, async || self.has_running_tasks().await) => {
                    let minutes = RESULT_LIMIT.as_secs() / 60;
                    return Err(anyhow::anyhow!(
                        "a result of delegated work did not arrive: none has run for {minutes} minutes; \
                         `rockbot sessions show {}` has the answer if there is one",
                        self.session
                    ))
                    .or_exit(exit::TEMPORARY);
                }
                _ = interrupts.recv() => return Ok(()),
            }
        }
        Ok(())
    }

    async fn expects_results(&self) -> bool {
        let (is_open, has_started) = {
            let background = self.background.lock().await;
            (background.is_open(), background.has_started())
        };
        is_open || (has_started && self.has_running_tasks().await)
    }

    /// Returns whether work that this conversation delegated runs. Returns `false` if the agent does not report it.
    async fn has_running_tasks(&self) -> bool {
        let listed = self.client.request(&self.agent, &ConversationRequest::Tasks {}).await;
        let Ok(ConversationResponse::Tasks { tasks }) = listed else { return false };
        tasks.iter().any(|task| task.session_id == self.session && !task.state.is_terminal())
    }

    /// Requests the cancellation of the turn. A separate task consumes the reply to it.
    async fn cancel(&self) -> Result<JoinHandle<()>, Failure> {
        let message = UserMessage::cancelling(self.session.clone());
        let replies = self.client.send(&self.agent, &message).await.or_exit(exit::UNAVAILABLE)?;
        Ok(tokio::spawn(async move {
            let _ = replies.last().await;
        }))
    }
}

/// Waits for an interrupt, or until `exit_at`.
async fn next_interrupt(interrupts: &mut Interrupts, exit_at: Option<Instant>) -> Interrupt {
    let expired = async {
        match exit_at {
            Some(exit_at) => sleep_until(exit_at).await,
            None => pending().await,
        }
    };
    tokio::select! {
        interrupt = interrupts.recv() => interrupt,
        () = expired => Interrupt::Leave,
    }
}
