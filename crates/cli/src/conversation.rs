//! One message to an agent, shown as its replies come in.

use std::{future::pending, io::Write, pin::pin, time::Duration};

use rockbot_agent::AgentClient;
use rockbot_contracts::{AgentName, ReplyBody, SessionId, UserMessage, user::TurnOutcome};
use rockbot_service::{Interrupt, exit, interrupted};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    approval,
    ending::{Exits, Failure},
    print::note,
    show,
};

/// How long an agent has to cancel a turn whose asker is to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

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
    /// None when this process was told twice to go on without the answer.
    pub(crate) outcome: Option<TurnOutcome>,
    pub(crate) calls: usize,
    /// Whether somebody asked this process to end meanwhile.
    pub(crate) leave: bool,
}

impl Conversation {
    /// Says something, shows what happens, and returns when the answer is complete. Ctrl-C cancels
    /// the turn; its answer still comes, unless Ctrl-C is pressed again. Who is to leave waits for 10 s.
    pub(crate) async fn say(&self, text: &str) -> Result<Told, Failure> {
        let message =
            UserMessage { session_id: self.session.clone(), text: text.to_owned(), cancel: false };
        let mut replies = self.client.say(&self.agent, &message).await.exits(exit::UNAVAILABLE)?;
        let mut screen = Screen { json: self.json, stats: self.stats, ..Screen::default() };
        let mut cancelling: Option<JoinHandle<()>> = None;
        let mut leave = false;
        let mut late = None;
        loop {
            let reply = tokio::select! {
                reply = replies.next() => reply,
                interrupt = interrupted(), if cancelling.is_none() => {
                    leave = interrupt == Interrupt::Leave;
                    cancelling = Some(self.cancel().await?);
                    if leave {
                        late = Some(Instant::now() + LEAVE_WITHIN);
                    } else if !self.json {
                        note!("{}", show::dim("cancelling; Ctrl-C again goes on without the answer"));
                    }
                    continue;
                }
                again = given_up(late), if cancelling.is_some() => {
                    leave |= again == Interrupt::Leave;
                    if let Some(task) = cancelling {
                        task.abort();
                    }
                    note!(
                        "the agent has not answered; it is told to cancel, and may have done some of it"
                    );
                    return Ok(Told { outcome: None, calls: screen.calls, leave });
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
                                late = Some(Instant::now() + LEAVE_WITHIN);
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
                return Ok(Told { outcome: Some(outcome), calls: screen.calls, leave });
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

/// Another interrupt, or `late`.
async fn given_up(late: Option<Instant>) -> Interrupt {
    let late = async {
        match late {
            Some(late) => sleep_until(late).await,
            None => pending().await,
        }
    };
    tokio::select! {
        interrupt = interrupted() => interrupt,
        () = late => Interrupt::Leave,
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
