//! An interactive session: messages and commands, and output between them.

use std::{
    future::pending,
    io::{IsTerminal, Write},
    path::Path,
};

use rockbot_agent::ScheduledResults;
use rockbot_contracts::{AgentReply, ContentBlock, InstanceId, ScheduledEnded, TurnUsage};
use rockbot_service::{Interrupts, exit};
use tracing::debug;

use super::{
    actions,
    commands::{self, SlashCommand},
    editor::PromptName,
    exit_code,
    input::{self, Input, InputReader},
};
use crate::{
    approval,
    contexts::SelectedContext,
    conversation::Conversation,
    failure::{Failure, Outcome},
    fleet::Fleet,
    images::Images,
    print::note,
    prompts::{self, Prompts},
    render, scheduled_result,
};

/// Output between turns that waits for the terminal; more is printed over the edited line.
const MAX_HELD: usize = 64;

/// An interactive session.
pub(super) struct Session<'a> {
    fleet: &'a Fleet,
    conversation: &'a mut Conversation,
    /// Prompts of MCP servers.
    prompts: Prompts<'a>,
    /// Images for the next message.
    images: Images,
    /// The last message with its images.
    last_message: Option<(String, Vec<ContentBlock>)>,
    last_usage: Option<TurnUsage>,
    /// Exit code of the last message.
    last_code: u8,
    /// Output that waits for the editor to leave the terminal.
    held: Vec<Between>,
}

/// Output between turns.
enum Between {
    /// A reply that answers no message.
    Reply(Box<AgentReply>),
    /// The result of a scheduled task.
    Scheduled(Box<ScheduledEnded>),
}

/// The next step of a session.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Exit,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        fleet: &'a Fleet,
        conversation: &'a mut Conversation,
        images: Images,
    ) -> Self {
        Self {
            fleet,
            conversation,
            prompts: Prompts::new(fleet),
            images,
            last_message: None,
            last_usage: None,
            last_code: exit::OK,
            held: Vec::new(),
        }
    }

    /// Reads and sends messages until the end of the input. Returns the exit code of the last one.
    pub(super) async fn run(
        mut self,
        context: Option<SelectedContext>,
        interrupts: &mut Interrupts,
    ) -> Outcome {
        let name = context.map(|context| PromptName {
            is_production: context.is_production(),
            name: context.name,
        });
        if self.conversation.display.keeps_calls {
            note!("{}", render::dim("/help lists the commands, Ctrl-D exits"));
        }
        let mut input = InputReader::start(name);
        let mut results = self.listen().await;
        loop {
            let (read, done) = tokio::select! {
                item = input.next() => match item {
                    Some(item) => item,
                    None => break,
                },
                Some(ended) = next_result(&mut results) => {
                    self.hold(Between::Scheduled(Box::new(ended)), &input).await?;
                    continue;
                }
                reply = self.conversation.next_background() => {
                    self.hold(Between::Reply(Box::new(reply)), &input).await?;
                    continue;
                }
                // No turn runs that could be cancelled, so either interrupt exits.
                _ = interrupts.recv() => break,
            };
            if read == Input::Paused && !self.held.is_empty() {
                clear_line();
            }
            self.print_held().await?;
            let next = match read {
                Input::Paused => Next::Continue,
                Input::TooLong if std::io::stdin().is_terminal() => {
                    note!("{}", input::too_long());
                    Next::Continue
                }
                Input::TooLong => return Err(Failure::usage(input::too_long())),
                Input::Unreadable(problem) => return Err(Failure::usage(problem)),
                Input::Line(line) => {
                    let agent = self.conversation.agent.clone();
                    let next = self.process(line.trim(), interrupts).await?;
                    if self.conversation.agent != agent {
                        results = self.listen().await;
                    }
                    next
                }
            };
            if next == Next::Exit {
                break;
            }
            // Lets the reader show its prompt again.
            drop(done);
        }
        Ok(self.last_code)
    }

    /// Prints output at once, or when the editor has left the terminal.
    async fn hold(&mut self, output: Between, input: &InputReader) -> Result<(), Failure> {
        self.held.push(output);
        if input.pause() && self.held.len() < MAX_HELD {
            return Ok(());
        }
        self.print_held().await
    }

    async fn print_held(&mut self) -> Result<(), Failure> {
        for output in std::mem::take(&mut self.held) {
            match output {
                Between::Reply(reply) => self.conversation.show(&reply.body).await?,
                Between::Scheduled(ended) => {
                    scheduled_result::print_result(&ended, self.conversation.display.json)?;
                }
            }
        }
        Ok(())
    }

    async fn process(&mut self, line: &str, interrupts: &mut Interrupts) -> Result<Next, Failure> {
        match commands::parse(line) {
            Some(Ok(SlashCommand::Image(file))) => match self.images.add(Path::new(&file)) {
                Ok(()) => {
                    note!("the image is sent with the next message");
                    Ok(Next::Continue)
                }
                Err(problem) => self.report(Failure::usage(problem)),
            },
            Some(Ok(SlashCommand::Prompt)) => match self.prompts.read(line).await {
                prompts::Input::Message(text) => self.send_prompt(&text, interrupts).await,
                prompts::Input::Notice(text) => {
                    note!("{text}");
                    Ok(Next::Continue)
                }
            },
            Some(Ok(SlashCommand::Retry)) => match self.last_message.clone() {
                Some((text, images)) => self.send(&text, images, interrupts).await,
                None => {
                    note!("there is no message to send again");
                    Ok(Next::Continue)
                }
            },
            Some(Ok(command)) => {
                let target = actions::Target {
                    fleet: self.fleet,
                    conversation: &mut *self.conversation,
                    usage: &mut self.last_usage,
                };
                let ran = actions::run(target, command).await;
                ran.map(|()| Next::Continue).or_else(|failure| self.report(failure))
            }
            Some(Err(problem)) => self.report(Failure::usage(problem)),
            None if line.is_empty() => Ok(Next::Continue),
            None => self.send_new(line, interrupts).await,
        }
    }

    /// Shows the text of a server's prompt, and sends it if the user at the terminal confirms it. Piped input has
    /// no one to ask: the line that names the prompt is sent on.
    async fn send_prompt(
        &mut self,
        text: &str,
        interrupts: &mut Interrupts,
    ) -> Result<Next, Failure> {
        note!("{}", prompts::shown(text));
        if std::io::stdin().is_terminal() && !approval::confirm_message().await {
            note!("  not sent");
            return Ok(Next::Continue);
        }
        self.send_new(text, interrupts).await
    }

    /// Sends a message with the images that were added for it.
    async fn send_new(&mut self, text: &str, interrupts: &mut Interrupts) -> Result<Next, Failure> {
        let images = std::mem::take(&mut self.images).into_blocks();
        self.last_message = Some((text.to_owned(), images.clone()));
        self.send(text, images, interrupts).await
    }

    async fn send(
        &mut self,
        text: &str,
        images: Vec<ContentBlock>,
        interrupts: &mut Interrupts,
    ) -> Result<Next, Failure> {
        match self.conversation.send(text, images, interrupts).await {
            Ok(turn) => {
                self.last_code = exit_code(turn.outcome);
                self.last_usage = turn.usage.or(self.last_usage);
                Ok(if turn.exit_requested { Next::Exit } else { Next::Continue })
            }
            Err(failure) => {
                let code = failure.code;
                let next = self.report(failure)?;
                self.last_code = code;
                Ok(next)
            }
        }
    }

    /// Prints a failure. A failed message or command does not end a session at a terminal. Elsewhere, the
    /// messages that follow may depend on it.
    fn report(&self, failure: Failure) -> Result<Next, Failure> {
        if !std::io::stdin().is_terminal() {
            return Err(failure);
        }
        let mut stderr = anstream::stderr().lock();
        writeln!(stderr, "{}", render::clean(&format!("{:#}", failure.cause)))?;
        Ok(Next::Continue)
    }

    /// Listens to the results of scheduled tasks. Without the right to, only the next turn shows them.
    async fn listen(&self) -> Option<ScheduledResults> {
        let Conversation { client, agent, .. } = &*self.conversation;
        let results = client.scheduled_results(agent, &InstanceId::generate()).await;
        results.inspect_err(|error| debug!(%error, "results of scheduled tasks not received")).ok()
    }
}

/// Returns the next result; never without a listener.
async fn next_result(results: &mut Option<ScheduledResults>) -> Option<ScheduledEnded> {
    match results {
        Some(results) => results.next().await,
        None => pending().await,
    }
}

/// Clears the line of the editor. The sequence is not a color, which may be off.
fn clear_line() {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\u{1b}[J").and_then(|()| stderr.flush());
}
