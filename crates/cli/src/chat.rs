//! `rockbot chat`: a single message or an interactive session with an agent.

mod actions;
mod commands;
mod editor;
mod input;
mod session;

use std::{io::IsTerminal, time::Duration};

use rockbot_agent::AgentClient;
use rockbot_contracts::{
    AgentName, SessionId, conversation::ConversationSummary, user::TurnOutcome,
};
use rockbot_llm::LlmConfigError;
use rockbot_service::{Interrupts, exit};

use crate::{
    approval,
    arguments::Chat,
    contexts::SelectedContext,
    conversation::{Conversation, Display, TurnResult},
    conversation_summary::{self, last_active, title},
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, SERVER_TIMEOUT, SERVERS_TIMEOUT, agent_client},
    host::Host,
    images::Images,
    print::note,
    render,
    settings::Settings,
    stored_conversations::ConversationStores,
};

/// The time limit between two replies of an agent: longer than the longest tool call.
const SILENCE_LIMIT: Duration = Duration::from_secs(11 * 60);

pub(crate) async fn run(mut settings: Settings, chat: Chat, json: bool) -> Outcome {
    // Validated before anything starts.
    let images = Images::read(&chat.images).map_err(Failure::usage)?;
    if let Some(name) = chat.agent.clone() {
        settings.agent.name = name;
    }
    let mut model = None;
    let (fleet, host, stores) = if settings.embeds() {
        let definition = settings.agent.definition().map_err(Failure::usage)?;
        let resolved = rockbot_llm::resolve(&settings.llm, &|name| std::env::var(name).ok());
        if matches!(resolved, Err(LlmConfigError::NotConfigured)) && !json {
            note!("`rockbot init` searches for a model, and writes the configuration file");
        }
        let resolved = resolved.or_exit(exit::USAGE)?;
        let model_name = resolved.model.name().to_owned();
        let definition_model = definition.model.clone();
        let stores = ConversationStores::open(&settings).await?;
        // A user at this terminal can answer servers of the embedded bridge.
        settings.mcp.elicitation |= approval::can_ask();
        let fleet = Fleet::embed(&settings, Some(&stores)).await?;
        let mut host = Host::start(&fleet, &settings, &stores, definition, resolved.model).await?;
        if chat.prompt.is_none() && !chat.only_resumes {
            host.start_scheduler();
        }
        model = Some(definition_model.unwrap_or(model_name)).filter(|name| !name.is_empty());
        if !json {
            note!("{}", render::dim(&format!("model: {}", resolved.origin)));
            stores.note_if_in_memory();
            for warning in host.warnings() {
                note!("{warning}");
            }
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
    let client = agent_client(fleet.bus.clone()).await?;
    let client = client.with_idle_timeout(SILENCE_LIMIT);
    let display = Display {
        json,
        stats: chat.stats,
        show: chat.show,
        keeps_calls: !json && chat.prompt.is_none() && std::io::stdin().is_terminal(),
        model,
        files: settings.embeds().then(|| settings.files.root.clone()),
    };
    let context = settings.context.clone();
    let chat_on = ChatOn { fleet: &fleet, client, agent, display, context };
    let outcome = chat_on.converse(chat, images).await;
    if let Some(host) = host {
        host.stop(settings.service.drain()).await;
    }
    fleet.close().await;
    if let Some(stores) = stores {
        stores.close().await;
    }
    outcome
}

/// The parts of a chat.
struct ChatOn<'a> {
    fleet: &'a Fleet,
    client: AgentClient,
    agent: AgentName,
    display: Display,
    /// The selected context.
    context: Option<SelectedContext>,
}

impl ChatOn<'_> {
    /// Runs the conversation that the arguments select, or a new one. `images` belong to its first message.
    async fn converse(self, chat: Chat, images: Images) -> Outcome {
        let Self { fleet, client, agent, display, context } = self;
        let earlier = if chat.continues || chat.session.is_some() {
            Some(conversation_summary::request(&client, &agent, chat.session).await?)
        } else {
            None
        };
        let session =
            earlier.as_ref().map_or_else(SessionId::generate, |earlier| earlier.session_id.clone());
        let mut conversation = Conversation::new(client, agent, session, display);
        let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
        if let Some(earlier) = &earlier {
            let resumed = resume(&conversation, earlier, &mut interrupts).await?;
            if chat.only_resumes || resumed.as_ref().is_some_and(|turn| turn.exit_requested) {
                return Ok(resumed.map_or(exit::OK, |turn| exit_code(turn.outcome)));
            }
        }
        match chat.prompt {
            Some(prompt) => run_once(&conversation, &prompt, images, &mut interrupts).await,
            None => {
                let session = session::Session::new(fleet, &mut conversation, images);
                session.run(context, &mut interrupts).await
            }
        }
    }
}

/// Shows which conversation continues, and follows its open turn, if it has one.
async fn resume(
    conversation: &Conversation,
    earlier: &ConversationSummary,
    interrupts: &mut Interrupts,
) -> Result<Option<TurnResult>, Failure> {
    let notify = |text: &str| {
        if !conversation.display.json {
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
    if prompt.len() > input::MAX_LINE_BYTES {
        return Err(Failure::usage(input::too_long()));
    }
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
