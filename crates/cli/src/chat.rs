//! `rockbot chat`: a message or a conversation with an agent.

use std::{
    io::{BufRead, IsTerminal, Write},
    time::Duration,
};

use reedline::{DefaultPrompt, DefaultPromptSegment, Reedline, Signal};
use rockbot_agent::AgentClient;
use rockbot_contracts::{AgentName, InstanceId, SessionId, user::TurnOutcome};
use rockbot_service::{exit, interrupted};
use tokio::sync::mpsc;

use crate::{
    arguments::Chat,
    conversation::Conversation,
    ending::{Exits, Failure, Outcome},
    fleet::Fleet,
    host::Host,
    print::note,
    settings::Settings,
    show,
};

/// How long an agent may be silent: longer than a turn may take, since a tool may be.
const PATIENCE: Duration = Duration::from_secs(11 * 60);

/// The longest line of a conversation, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;

pub(crate) async fn run(mut settings: Settings, chat: Chat, json: bool) -> Outcome {
    if let Some(name) = chat.agent {
        settings.agent.name = name;
    }
    let (fleet, host) = if settings.embeds() {
        let definition = settings.agent.definition().map_err(Failure::usage)?;
        let resolved = rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok());
        let resolved = resolved.exits(exit::USAGE)?;
        let fleet = Fleet::embed(&settings).await?;
        let host = Host::start(&fleet, &settings, definition, resolved.model).await?;
        if !json {
            note!("{}", show::dim(&format!("model: {}", resolved.origin)));
        }
        (fleet, Some(host))
    } else {
        (Fleet::reach(&settings).await?, None)
    };
    let agent = AgentName::new(settings.agent.name.as_str()).exits(exit::USAGE)?;
    fleet.expect_agent(&agent).await?;
    let proxy = InstanceId::generate();
    let client = AgentClient::connect(fleet.bus.clone(), &proxy).await.exits(exit::UNAVAILABLE)?;
    let client = client.with_silence(PATIENCE);
    let conversation =
        Conversation { client, agent, session: SessionId::generate(), json, stats: chat.stats };
    let outcome = match chat.prompt {
        Some(prompt) => once(&conversation, &prompt).await,
        None => converse(&conversation).await,
    };
    drop(conversation);
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.leave().await;
    outcome
}

async fn once(conversation: &Conversation, prompt: &str) -> Outcome {
    let told = conversation.say(prompt).await?;
    Ok(code_of(told.outcome))
}

fn code_of(outcome: Option<TurnOutcome>) -> u8 {
    let Some(outcome) = outcome else { return exit::TEMPORARY };
    match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit => exit::OK,
        TurnOutcome::ToolTimeouts | TurnOutcome::Overloaded | TurnOutcome::Expired => {
            exit::TEMPORARY
        }
        TurnOutcome::ModelFailed => exit::UNAVAILABLE,
        TurnOutcome::Cancelled | TurnOutcome::Other => exit::ANSWERED_WITH_ERROR,
    }
}

async fn converse(conversation: &Conversation) -> Outcome {
    let mut lines = lines();
    let mut last = exit::OK;
    loop {
        let (line, done) = tokio::select! {
            line = lines.recv() => match line {
                Some(line) => line,
                None => break,
            },
            // Nothing runs that could be cancelled, so either interrupt means to leave.
            _ = interrupted() => break,
        };
        let line = line.trim();
        if !line.is_empty() {
            match conversation.say(line).await {
                Ok(told) => {
                    last = code_of(told.outcome);
                    if told.leave {
                        break;
                    }
                }
                // One failed message does not end a conversation with a person.
                Err(failure) if std::io::stdin().is_terminal() => {
                    let mut stderr = anstream::stderr().lock();
                    writeln!(stderr, "{:#}", failure.cause)?;
                    last = failure.code;
                }
                Err(failure) => return Err(failure),
            }
        }
        // The reader shows its prompt again only now.
        drop(done);
    }
    Ok(last)
}

/// A line, and what is dropped when it has been dealt with.
type Line = (String, std::sync::mpsc::Sender<()>);

/// Reads lines on a thread of its own, since reading a terminal blocks: with editing and history
/// on a terminal, as they come otherwise.
fn lines() -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut next = reader();
        while let Some(mut line) = next() {
            line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
            let (done, dealt_with) = std::sync::mpsc::channel();
            if sender.blocking_send((line, done)).is_err() {
                return;
            }
            // Ends with an error when the other end is dropped, which is what is waited for.
            let _ = dealt_with.recv();
        }
    });
    lines
}

fn reader() -> Box<dyn FnMut() -> Option<String>> {
    if !std::io::stdin().is_terminal() {
        let mut lines = std::io::stdin().lock().lines();
        return Box::new(move || lines.next()?.ok());
    }
    let mut editor = Reedline::create();
    let left = DefaultPromptSegment::Basic("you ".to_owned());
    let prompt = DefaultPrompt::new(left, DefaultPromptSegment::Empty);
    Box::new(move || {
        loop {
            match editor.read_line(&prompt) {
                Ok(Signal::Success(line)) => return Some(line),
                // An empty line at Ctrl-C: nothing runs that could be cancelled.
                Ok(Signal::CtrlC) => {}
                _ => return None,
            }
        }
    })
}
