//! One message to an agent, shown as its replies come in.

use std::{io::Write, pin::pin};

use rockbot_agent::AgentClient;
use rockbot_contracts::{AgentName, ReplyBody, SessionId, UserMessage, user::TurnOutcome};
use rockbot_service::{Interrupt, exit, interrupted};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    approval,
    ending::{Exits, Failure},
    show,
};

/// Somebody to talk to, and what was said before.
pub(crate) struct Conversation {
    pub(crate) client: AgentClient,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) json: bool,
    /// Whether to show what an answer took.
    pub(crate) stats: bool,
}

/// What a message came to.
pub(crate) struct Told {
    pub(crate) outcome: TurnOutcome,
    pub(crate) calls: usize,
    /// Whether somebody asked this process to end meanwhile.
    pub(crate) leave: bool,
}

impl Conversation {
    /// Says something, shows what happens, and returns when the answer is complete. Ctrl-C cancels
    /// the turn; its answer still comes.
    pub(crate) async fn say(&self, text: &str) -> Result<Told, Failure> {
        let message =
            UserMessage { session_id: self.session.clone(), text: text.to_owned(), cancel: false };
        let mut replies = self.client.say(&self.agent, &message).await.exits(exit::UNAVAILABLE)?;
        let mut screen = Screen { json: self.json, stats: self.stats, ..Screen::default() };
        let mut cancelling: Option<JoinHandle<()>> = None;
        let mut leave = false;
        loop {
            let reply = tokio::select! {
                reply = replies.next() => reply,
                interrupt = interrupted(), if cancelling.is_none() => {
                    leave = interrupt == Interrupt::Leave;
                    cancelling = Some(self.cancel().await?);
                    continue;
                }
            };
            let Some(reply) = reply else {
                return Err(Failure::unavailable("the agent ended without an answer"));
            };
            let reply = reply.exits(exit::TEMPORARY)?;
            screen.show(&reply.body)?;
            if let ReplyBody::ApprovalAsked { .. } = reply.body {
                let mut answered = pin!(approval::answer(&reply.body, &self.session));
                let answer = loop {
                    tokio::select! {
                        answer = &mut answered => break answer,
                        interrupt = interrupted(), if cancelling.is_none() => {
                            leave = interrupt == Interrupt::Leave;
                            cancelling = Some(self.cancel().await?);
                            if leave {
                                break None;
                            }
                            approval::withdrawn();
                        }
                    }
                };
                if let Some(answer) = answer {
                    self.client.approve(&self.agent, &answer).await.exits(exit::UNAVAILABLE)?;
                }
            }
            if let ReplyBody::Answer { outcome, .. } = reply.body {
                if let Some(task) = cancelling {
                    task.abort();
                }
                return Ok(Told { outcome, calls: screen.calls, leave });
            }
        }
    }

    /// Asks the agent to stop the turn. The answer to that is heard by a task of its own.
    async fn cancel(&self) -> Result<JoinHandle<()>, Failure> {
        let message =
            UserMessage { session_id: self.session.clone(), text: String::new(), cancel: true };
        let replies = self.client.say(&self.agent, &message).await.exits(exit::UNAVAILABLE)?;
        Ok(tokio::spawn(async move {
            let _ = replies.last().await;
        }))
    }
}

/// What is on the screen: text that streams, and lines in between.
#[derive(Default)]
struct Screen {
    json: bool,
    stats: bool,
    in_text: bool,
    shown_text: String,
    calls: usize,
}

impl Screen {
    fn show(&mut self, body: &ReplyBody) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        if let ReplyBody::ToolFinished { .. } = body {
            self.calls += 1;
        }
        if self.json {
            let line = serde_json::to_string(&json!(body)).exits(exit::SOFTWARE)?;
            writeln!(stdout, "{line}")?;
            return Ok(());
        }
        match body {
            ReplyBody::TextDelta { text } => {
                self.shown_text.push_str(text);
                self.in_text = true;
                write!(stdout, "{}", show::clean(text))?;
            }
            ReplyBody::Answer { text, usage, .. } => {
                // Most of an answer has streamed already; what the agent says itself has not.
                let rest = text.strip_prefix(self.shown_text.as_str());
                let streamed = self.shown_text.ends_with(text.as_str());
                match rest {
                    _ if streamed => {}
                    Some(rest) => write!(stdout, "{}", show::clean(rest))?,
                    None => {
                        self.end_line(&mut stdout)?;
                        write!(stdout, "{}", show::clean(text))?;
                    }
                }
                writeln!(stdout)?;
                if let Some(usage) = usage.filter(|_| self.stats) {
                    writeln!(stdout, "{}", show::dim(&show::usage(&usage)))?;
                }
            }
            other => {
                if let Some(line) = show::call_line(other) {
                    self.end_line(&mut stdout)?;
                    self.shown_text.clear();
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
