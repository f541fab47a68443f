//! A chat conversation: sends a message to an agent and prints its replies as they arrive.

use std::{future::pending, io::Write, pin::pin, time::Duration};

use rockbot_agent::{AgentClient, Replies};
use rockbot_contracts::{
    AgentName, ContentBlock, MessageId, ReplyBody, SessionId, UserMessage, user::TurnOutcome,
};
use rockbot_service::{Interrupt, Interrupts, exit};
use serde_json::json;
use tokio::{
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    approval,
    failure::{Failure, OrExit},
    follow_ups::{self, Background},
    print::note,
    render,
};

/// The time limit for cancelling a turn when the process is about to exit.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// A conversation with an agent.
pub(crate) struct Conversation {
    pub(crate) client: AgentClient,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) json: bool,
    /// Show the usage of each turn.
    pub(crate) stats: bool,
    /// Replies that answer no message.
    pub(crate) background: Mutex<Background>,
}

/// The result of one message.
pub(crate) struct TurnResult {
    /// `None` when the user stopped waiting for the answer.
    pub(crate) outcome: Option<TurnOutcome>,
    /// The number of calls that crossed the bus.
    pub(crate) calls: usize,
    /// Set when a signal asked the process to exit.
    pub(crate) exit_requested: bool,
}

impl Conversation {
    /// Sends a message with these images, prints the replies, and returns when the answer is complete. Ctrl-C cancels the
    /// turn and waits for its answer; a second Ctrl-C stops waiting. A signal to exit waits for 10 s.
    pub(crate) async fn send(
        &self,
        text: &str,
        images: Vec<ContentBlock>,
        interrupts: &mut Interrupts,
    ) -> Result<TurnResult, Failure> {
        let message = UserMessage { media: images, ..UserMessage::new(self.session.clone(), text) };
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
        mut replies: Replies,
        interrupts: &mut Interrupts,
    ) -> Result<TurnResult, Failure> {
        let mut printer =
            TurnPrinter { json: self.json, stats: self.stats, ..TurnPrinter::default() };
        let mut cancelling: Option<JoinHandle<()>> = None;
        let mut exit_requested = false;
        let mut exit_at = None;
        let mut background = self.background.lock().await;
        loop {
            let reply = tokio::select! {
                reply = replies.next() => reply,
                reply = background.next() => {
                    self.show(&reply.body).await?;
                    continue;
                }
                interrupt = next_interrupt(interrupts, exit_at) => {
                    exit_requested |= interrupt == Interrupt::Leave;
                    if let Some(task) = cancelling {
                        task.abort();
                        note!("no answer yet; the turn is being cancelled and may be partly done");
                        return Ok(TurnResult {
                            outcome: None,
                            calls: printer.calls,
                            exit_requested,
                        });
                    }
                    cancelling = Some(self.cancel().await?);
                    if exit_requested {
                        exit_at = Some(Instant::now() + EXIT_GRACE);
                    } else if !self.json {
                        note!("{}", render::dim("cancelling; press Ctrl-C again to stop waiting"));
                    }
                    continue;
                }
            };
            let Some(reply) = reply else {
                return Err(Failure::unavailable("the agent stopped before it answered"));
            };
            let reply = reply.or_exit(exit::TEMPORARY)?;
            printer.report_lost(replies.lost())?;
            printer.print(&reply.body)?;
            background.count_start(&reply.body);
            if let ReplyBody::ApprovalAsked { .. } = reply.body {
                let mut deciding = pin!(approval::request_decision(&reply.body, &self.session));
                let decision = loop {
                    tokio::select! {
                        decision = &mut deciding => break decision,
                        interrupt = interrupts.recv(), if cancelling.is_none() => {
                            exit_requested = interrupt == Interrupt::Leave;
                            cancelling = Some(self.cancel().await?);
                            if exit_requested {
                                exit_at = Some(Instant::now() + EXIT_GRACE);
                                break None;
                            }
                            approval::show_expired();
                        }
                    }
                };
                if let Some(decision) = decision {
                    self.client
                        .answer_approval(&self.agent, &decision)
                        .await
                        .or_exit(exit::UNAVAILABLE)?;
                }
            }
            if let ReplyBody::Answer { outcome, .. } = reply.body {
                if let Some(task) = cancelling {
                    task.abort();
                }
                return Ok(TurnResult {
                    outcome: Some(outcome),
                    calls: printer.calls,
                    exit_requested,
                });
            }
        }
    }

    /// Prints a reply that answers no message, and asks the user for a decision that it requests.
    async fn show(&self, body: &ReplyBody) -> Result<(), Failure> {
        follow_ups::print(body, self.json)?;
        if let Some(decision) = approval::request_decision(body, &self.session).await {
            let answered = self.client.answer_approval(&self.agent, &decision).await;
            answered.or_exit(exit::UNAVAILABLE)?;
        }
        Ok(())
    }

    /// Waits for the next reply that answers no message, and prints it.
    ///
    /// # Cancellation
    /// A reply that is being printed is printed in part.
    pub(crate) async fn show_background(&self) -> Result<(), Failure> {
        let reply = self.background.lock().await.next().await;
        self.show(&reply.body).await
    }

    /// Prints replies until no further results of handed over work are expected, or an interrupt.
    pub(crate) async fn await_background(
        &self,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        while self.background.lock().await.is_open() {
            tokio::select! {
                shown = self.show_background() => shown?,
                _ = interrupts.recv() => return Ok(()),
            }
        }
        Ok(())
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

/// Prints the replies of one turn: streamed text, with lines for tool calls in between.
#[derive(Default)]
struct TurnPrinter {
    json: bool,
    stats: bool,
    in_text: bool,
    printed_text: String,
    calls: usize,
    lost: u64,
}

impl TurnPrinter {
    /// Prints how many replies were lost since the last one, when there are any.
    fn report_lost(&mut self, lost: u64) -> Result<(), Failure> {
        let missing = lost - std::mem::replace(&mut self.lost, lost);
        if missing == 0 {
            return Ok(());
        }
        let mut stdout = anstream::stdout().lock();
        if self.json {
            writeln!(stdout, "{}", json!({"kind": "replies_lost", "count": missing}))?;
            return Ok(());
        }
        self.end_line(&mut stdout)?;
        // The whole answer is printed at the end, because a part of it may be missing.
        self.printed_text.clear();
        writeln!(stdout, "{}", render::dim(&render::lost(missing)))?;
        Ok(())
    }

    fn print(&mut self, body: &ReplyBody) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        if let ReplyBody::ToolFinished { ran_on: Some(_), .. } = body {
            self.calls += 1;
        }
        if self.json {
            writeln!(stdout, "{}", render::json_line(&json!(body)))?;
            return Ok(());
        }
        match body {
            ReplyBody::TextDelta { text } => {
                self.printed_text.push_str(text);
                self.in_text = true;
                write!(stdout, "{}", render::clean(text))?;
            }
            ReplyBody::Answer { text, usage, .. } => {
                // Text of the model has been streamed already; text of the agent itself has not.
                let rest = text.strip_prefix(self.printed_text.as_str());
                let streamed = self.printed_text.ends_with(text.as_str());
                match rest {
                    _ if streamed => {}
                    Some(rest) => write!(stdout, "{}", render::clean(rest))?,
                    None => {
                        self.end_line(&mut stdout)?;
                        write!(stdout, "{}", render::clean(text))?;
                    }
                }
                writeln!(stdout)?;
                if let Some(usage) = usage.filter(|_| self.stats) {
                    writeln!(stdout, "{}", render::dim(&render::usage(&usage)))?;
                }
            }
            other => {
                if let Some(line) = render::call_line(other) {
                    self.end_line(&mut stdout)?;
                    self.printed_text.clear();
                    writeln!(stdout, "{line}")?;
                }
            }
        }
        stdout.flush()?;
        Ok(())
    }

    fn end_line(&mut self, stdout: &mut impl Write) -> std::io::Result<()> {
        if std::mem::take(&mut self.in_text) {
            writeln!(stdout)?;
        }
        Ok(())
    }
}
