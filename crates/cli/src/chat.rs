//! `rockbot chat`: a single message or an interactive session with an agent.

use std::{
    future::pending,
    io::{BufRead, IsTerminal, Write},
    path::Path,
    time::Duration,
};

use reedline::{DefaultPrompt, DefaultPromptSegment, Reedline, Signal};
use rockbot_agent::{AgentClient, ScheduledResults};
use rockbot_contracts::{
    AgentName, InstanceId, ScheduledEnded, SessionId, conversation::ConversationSummary,
    user::TurnOutcome,
};
use rockbot_service::{Interrupts, exit};
use tokio::sync::{Mutex, mpsc};
use tracing::debug;

use crate::{
    arguments::Chat,
    conversation::{Conversation, TurnResult},
    conversation_summary::{self, last_active, title},
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, SERVER_TIMEOUT, SERVERS_TIMEOUT},
    follow_ups::Background,
    host::Host,
    images::Images,
    print::note,
    render, scheduled_result,
    settings::Settings,
    stored_conversations::ConversationStores,
};

/// The time limit between two replies of an agent: longer than the longest tool call.
const SILENCE_LIMIT: Duration = Duration::from_secs(11 * 60);

/// The beginning of a line that adds an image to the next message.
const IMAGE_COMMAND: &str = "/image ";

/// The longest line of input, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;

pub(crate) async fn run(mut settings: Settings, chat: Chat, json: bool) -> Outcome {
    // Validated before anything starts.
    let images = Images::read(&chat.images).map_err(Failure::usage)?;
    if let Some(name) = chat.agent.clone() {
        settings.agent.name = name;
    }
    let (fleet, host, stores) = if settings.embeds() {
        let definition = settings.agent.definition().map_err(Failure::usage)?;
        let resolved = rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok());
        let resolved = resolved.or_exit(exit::USAGE)?;
        let stores = ConversationStores::open(&settings).await?;
        let fleet = Fleet::embed(&settings, Some(&stores)).await?;
        let mut host = Host::start(&fleet, &settings, &stores, definition, resolved.model).await?;
        if chat.prompt.is_none() && !chat.only_resumes {
            host.start_scheduler();
        }
        if !json {
            note!("{}", render::dim(&format!("model: {}", resolved.origin)));
            stores.note_if_in_memory();
        }
        // A single message is answered with the tools of the first request to the model; in a session,
        // later messages get the tools of servers that start later.
        let limit = if chat.prompt.is_some() { SERVER_TIMEOUT } else { SERVERS_TIMEOUT };
        fleet.await_mcp_servers(limit).await;
        (fleet, Some(host), Some(stores))
    } else {
        (Fleet::open(&settings).await?, None, None)
    };
    let agent = AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?;
    fleet.expect_agent(&agent).await?;
    let instance = InstanceId::generate();
    let client =
        AgentClient::connect(fleet.bus.clone(), &instance).await.or_exit(exit::UNAVAILABLE)?;
    let client = client.with_idle_timeout(SILENCE_LIMIT);
    let outcome = converse(client, agent, chat, images, json).await;
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.close().await;
    if let Some(stores) = stores {
        stores.close().await;
    }
    outcome
}

/// Runs the conversation that the arguments select, or a new one. `images` belong to its first message.
async fn converse(
    client: AgentClient,
    agent: AgentName,
    chat: Chat,
    images: Images,
    json: bool,
) -> Outcome {
    let earlier = if chat.continues || chat.session.is_some() {
        Some(conversation_summary::request(&client, &agent, chat.session).await?)
    } else {
        None
    };
    let session =
        earlier.as_ref().map_or_else(SessionId::generate, |earlier| earlier.session_id.clone());
    let background = Mutex::new(Background::new(&client, session.clone()));
    let stats = chat.stats;
    let conversation = Conversation { client, agent, session, json, stats, background };
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    if let Some(earlier) = &earlier {
        let resumed = resume(&conversation, earlier, &mut interrupts).await?;
        if chat.only_resumes || resumed.as_ref().is_some_and(|turn| turn.exit_requested) {
            return Ok(resumed.map_or(exit::OK, |turn| exit_code(turn.outcome)));
        }
    }
    match chat.prompt {
        Some(prompt) => run_once(&conversation, &prompt, images, &mut interrupts).await,
        None => run_interactive(&conversation, images, &mut interrupts).await,
    }
}

/// Shows which conversation continues, and follows its open turn, if it has one.
async fn resume(
    conversation: &Conversation,
    earlier: &ConversationSummary,
    interrupts: &mut Interrupts,
) -> Result<Option<TurnResult>, Failure> {
    let notify = |text: &str| {
        if !conversation.json {
            note!("{}", render::dim(text));
        }
    };
    let (title, when) = (title(earlier), last_active(earlier));
    notify(&format!("continuing \"{title}\", last active {when}"));
    let Some(message) = &earlier.open_message else {
        notify("every message of it was answered");
        return Ok(None);
    };
    notify("its last turn was interrupted; it goes on");
    conversation.adopt(message, interrupts).await.map(Some)
}

async fn run_once(
    conversation: &Conversation,
    prompt: &str,
    images: Images,
    interrupts: &mut Interrupts,
) -> Outcome {
    let turn = conversation.send(prompt, images.into_blocks(), interrupts).await?;
    if !turn.exit_requested {
        conversation.await_background(interrupts).await?;
    }
    Ok(exit_code(turn.outcome))
}

fn exit_code(outcome: Option<TurnOutcome>) -> u8 {
    let Some(outcome) = outcome else { return exit::TEMPORARY };
    match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit | TurnOutcome::BudgetExceeded => {
            exit::OK
        }
        TurnOutcome::ToolTimeouts | TurnOutcome::Overloaded | TurnOutcome::Expired => {
            exit::TEMPORARY
        }
        TurnOutcome::ModelFailed => exit::UNAVAILABLE,
        TurnOutcome::Cancelled | TurnOutcome::Other => exit::ANSWERED_WITH_ERROR,
    }
}

async fn run_interactive(
    conversation: &Conversation,
    mut images: Images,
    interrupts: &mut Interrupts,
) -> Outcome {
    let mut lines = lines();
    let mut results = listen(conversation).await;
    let mut last = exit::OK;
    loop {
        let (line, done) = tokio::select! {
            line = lines.recv() => match line {
                Some(line) => line,
                None => break,
            },
            Some(ended) = next_result(&mut results) => {
                scheduled_result::print_result(&ended, conversation.json)?;
                continue;
            }
            shown = conversation.show_background() => {
                shown?;
                continue;
            }
            // No turn runs that could be cancelled, so either interrupt exits.
            _ = interrupts.recv() => break,
        };
        let line = line.trim();
        if let Some(path) = line.strip_prefix(IMAGE_COMMAND) {
            match images.add(Path::new(path.trim())) {
                Ok(()) => note!("the image is sent with the next message"),
                Err(problem) => note!("{}", render::clean(&problem)),
            }
        } else if !line.is_empty() {
            let images = std::mem::take(&mut images).into_blocks();
            match conversation.send(line, images, interrupts).await {
                Ok(turn) => {
                    last = exit_code(turn.outcome);
                    if turn.exit_requested {
                        break;
                    }
                }
                // A failed message does not end an interactive session.
                Err(failure) if std::io::stdin().is_terminal() => {
                    let mut stderr = anstream::stderr().lock();
                    writeln!(stderr, "{}", render::clean(&format!("{:#}", failure.cause)))?;
                    last = failure.code;
                }
                Err(failure) => return Err(failure),
            }
        }
        // Lets the reader show its prompt again.
        drop(done);
    }
    Ok(last)
}

/// Listens to the results of scheduled tasks. Without the right to, only the next turn shows them.
async fn listen(conversation: &Conversation) -> Option<ScheduledResults> {
    let Conversation { client, agent, .. } = conversation;
    let results = client.scheduled_results(agent, &InstanceId::generate()).await;
    results.inspect_err(|error| debug!(%error, "results of scheduled tasks not received")).ok()
}

/// Returns the next result; never without a listener.
async fn next_result(results: &mut Option<ScheduledResults>) -> Option<ScheduledEnded> {
    match results {
        Some(results) => results.next().await,
        None => pending().await,
    }
}

/// A line of input, and a sender that is dropped when the line has been processed.
type Line = (String, std::sync::mpsc::Sender<()>);

/// Reads lines on a separate thread, since reading a terminal blocks. On a terminal the input has
/// line editing and history.
fn lines() -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut next = reader();
        while let Some(mut line) = next() {
            line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
            let (done, processed) = std::sync::mpsc::channel();
            if sender.blocking_send((line, done)).is_err() {
                return;
            }
            // Returns an error when the sender is dropped, which is the expected signal.
            let _ = processed.recv();
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
                // Ctrl-C clears the line: no turn runs that could be cancelled.
                Ok(Signal::CtrlC) => {}
                _ => return None,
            }
        }
    })
}
