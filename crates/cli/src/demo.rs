//! `rockbot demo`: a scripted model calls real tools over the in-memory bus.

pub(crate) mod team;
pub(crate) mod web;

use std::{fs, io, path::Path, sync::Arc};

use anyhow::Context;
use rockbot_agent::AgentDefinition;
use rockbot_contracts::{SessionId, UserMessage, user::TurnOutcome};
use rockbot_llm::{ChatModel, ScriptedModel};
use rockbot_service::{Interrupts, exit};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::{
    conversation::{Conversation, Display, TurnResult},
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, agent_client},
    host::Host,
    print::outln,
    render,
    settings::Settings,
    stored_conversations::ConversationStores,
    watch,
};

/// The turns of the model, and the message of the user.
const SCRIPT: &str = include_str!("../../../examples/demo.toml");
const PROMPT: &str = "What is in this folder, and which files mention the bus?";

/// The files in the temporary directory.
const FILES: [(&str, &str); 3] = [
    (
        "notes.md",
        "# Notes\n\nThe agent touches nothing outside itself.\nIt calls tools by name, and the bus carries each call.\n",
    ),
    (
        "bus.md",
        "# The bus\n\nOne port, two implementations: in memory for a newcomer, RabbitMQ for a fleet.\n",
    ),
    ("todo.txt", "connect a real model\n"),
];

const NEXT: &str = "\
The model was scripted; the tools, the bus and the results were real.
Next, use a real model:
  cargo run -- init           finds a key or a local server, tries it, and writes the configuration file
  OPENAI_API_KEY=…                                      cargo run -- chat
  OPENROUTER_API_KEY=…                                  cargo run -- chat
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3:8b  cargo run -- chat
  cargo xtask local-model     serves a small model on this machine, without an API key";

pub(crate) async fn run(settings: Settings) -> Outcome {
    let folder = create_files("")?;
    let mut settings = at(settings, folder.path());
    settings.agent.conversations.store = Some(SecretString::from("memory:"));
    let model = Arc::new(ScriptedModel::from_toml("demo", SCRIPT).or_exit(exit::SOFTWARE)?);
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let definition = AgentDefinition::assistant();
    let fleet = DemoFleet::start(&settings, definition, model, SessionId::generate()).await?;
    print_introduction(
        folder.path(),
        "An agent and a tool handler run in this process, connected by an in-memory bus.",
    )?;
    let turn = fleet.ask(PROMPT, &mut interrupts).await;
    fleet.stop(&settings).await;
    folder.close().context("cannot remove the temporary directory").or_exit(exit::SOFTWARE)?;
    let turn = turn?;
    outln!("\n{}", render::dim(&format!("{} tool calls crossed the bus.", turn.calls)))?;
    outln!("{NEXT}")?;
    Ok(exit::OK)
}

/// Runs the demo, and shows its calls as `rockbot watch` does. On a terminal they are shown until the user quits.
pub(crate) async fn watch(settings: Settings, json: bool) -> Outcome {
    let folder = create_files("")?;
    let mut settings = at(settings, folder.path());
    settings.agent.conversations.store = Some(SecretString::from("memory:"));
    let model = Arc::new(ScriptedModel::from_toml("demo", SCRIPT).or_exit(exit::SOFTWARE)?);
    let definition = AgentDefinition::assistant();
    let fleet = DemoFleet::start(&settings, definition, model, SessionId::generate()).await?;
    let watched =
        watch::run_beside(&fleet.fleet, scripted_calls(), json, fleet.ask_silently(PROMPT)).await;
    fleet.stop(&settings).await;
    folder.close().context("cannot remove the temporary directory").or_exit(exit::SOFTWARE)?;
    watched.map(|()| exit::OK)
}

/// Returns the number of calls in the script.
fn scripted_calls() -> u64 {
    SCRIPT.matches("[[turn.call]]").count() as u64
}

/// Returns settings without a broker, for tools that work in `folder`.
fn at(mut settings: Settings, folder: &Path) -> Settings {
    settings.files.root = folder.to_owned();
    settings.bus.url = SecretString::from("memory");
    settings.memory.store = Some(SecretString::from("memory:"));
    settings
}

/// An agent, a tool handler, and a conversation with the agent.
struct DemoFleet {
    conversation: Conversation,
    host: Host,
    fleet: Fleet,
    stores: ConversationStores,
}

impl DemoFleet {
    async fn start(
        settings: &Settings,
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        session: SessionId,
    ) -> Result<Self, Failure> {
        let stores = ConversationStores::open(settings).await?;
        let fleet = Fleet::embed(settings, Some(&stores)).await?;
        let agent = definition.name.clone();
        let display = Display { stats: definition.internal.wisps, ..Display::default() };
        let host = Host::start(&fleet, settings, &stores, definition, model).await?;
        let client = agent_client(fleet.bus.clone()).await?;
        let conversation = Conversation::new(client, agent, session, display);
        Ok(Self { conversation, host, fleet, stores })
    }

    /// Sends a message, and prints what happens until the answer.
    async fn ask(&self, prompt: &str, interrupts: &mut Interrupts) -> Result<TurnResult, Failure> {
        outln!("{}\n", heading(&format!("> {prompt}")))?;
        let turn = self.conversation.send(prompt, Vec::new(), interrupts).await?;
        if turn.outcome != Some(TurnOutcome::Completed) || turn.calls == 0 {
            let cause = anyhow::anyhow!("the demo failed: the turn ended as {:?}", turn.outcome);
            return Err(Failure { code: exit::SOFTWARE, cause });
        }
        Ok(turn)
    }

    /// Sends a message, and waits for its answer.
    async fn ask_silently(&self, prompt: &str) -> Result<(), Failure> {
        let Conversation { client, agent, session, .. } = &self.conversation;
        let message = UserMessage::new(session.clone(), prompt);
        let replies = client.send(agent, &message).await.or_exit(exit::UNAVAILABLE)?;
        replies.last().await.or_exit(exit::SOFTWARE)?;
        Ok(())
    }

    async fn stop(self, settings: &Settings) {
        drop(self.conversation);
        self.host.stop(settings.service.drain()).await;
        self.fleet.close().await;
        self.stores.close().await;
    }
}

fn heading(text: &str) -> String {
    let bold = anstyle::Style::new().bold();
    format!("{bold}{text}{bold:#}")
}

/// Creates the temporary directory, with the demo's files below `name`.
fn create_files(name: &str) -> Result<TempDir, Failure> {
    let create = || -> io::Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("rockbot-demo").tempdir()?;
        let files = folder.path().join(name);
        fs::create_dir_all(&files)?;
        for (name, text) in FILES {
            fs::write(files.join(name), text)?;
        }
        Ok(folder)
    };
    create().context("cannot create the temporary directory of the demo").or_exit(exit::SOFTWARE)
}

fn print_introduction(folder: &Path, processes: &str) -> io::Result<()> {
    let folder = folder.display();
    outln!("{}", render::dim(&format!("{processes}\nThe tools of the handler work in {folder}.\n")))
}
