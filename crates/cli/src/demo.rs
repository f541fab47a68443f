//! `rockbot demo`: a scripted model calls real tools over the in-memory bus.

use std::{fs, io, path::Path, sync::Arc};

use anyhow::Context;
use rockbot_agent::AgentDefinition;
use rockbot_contracts::{ConversationRequest, ConversationResponse, SessionId, user::TurnOutcome};
use rockbot_llm::ScriptedModel;
use rockbot_service::{Interrupts, exit};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::{
    conversation::{Conversation, Display},
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, agent_client},
    host::Host,
    print::outln,
    render,
    settings::Settings,
    stored_conversations::ConversationStores,
    tasks,
};

/// A conversation with the scripted model.
struct Scene {
    /// The turns of the model.
    script: &'static str,
    prompt: &'static str,
}

const SINGLE: Scene = Scene {
    script: include_str!("../../../examples/demo.toml"),
    prompt: "What is in this folder, and which files mention the bus?",
};
const TEAM: Scene = Scene {
    script: include_str!("../../../examples/demo-team.toml"),
    prompt: "Review this folder, in parts that you hand over.",
};

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

pub(crate) async fn run(mut settings: Settings, is_team: bool) -> Outcome {
    let Scene { script, prompt } = if is_team { TEAM } else { SINGLE };
    let folder = create_files()
        .context("cannot create the temporary directory of the demo")
        .or_exit(exit::SOFTWARE)?;
    settings.files.root = folder.path().to_owned();
    settings.bus.url = SecretString::from("memory");
    settings.memory.store = Some(SecretString::from("memory:"));
    settings.agent.conversations.store = Some(SecretString::from("memory:"));
    let model = Arc::new(ScriptedModel::from_toml("demo", script).or_exit(exit::SOFTWARE)?);
    let stores = ConversationStores::open(&settings).await?;
    let fleet = Fleet::embed(&settings, Some(&stores)).await?;
    let mut definition = AgentDefinition::assistant();
    definition.internal.batch = is_team;
    let agent = definition.name.clone();
    let host = Host::start(&fleet, &settings, &stores, definition, model).await?;
    let client = agent_client(fleet.bus.clone()).await?;
    let session = SessionId::generate();
    let display = Display { stats: is_team, ..Display::default() };
    let conversation = Conversation::new(client, agent, session, display);
    print_introduction(folder.path(), prompt)?;
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let turn = conversation.send(prompt, Vec::new(), &mut interrupts).await;
    let shown = if is_team { show_team(&conversation, &mut interrupts).await } else { Ok(()) };
    drop(conversation);
    host.stop(settings.service.drain()).await;
    fleet.close().await;
    stores.close().await;
    folder.close().context("cannot remove the temporary directory").or_exit(exit::SOFTWARE)?;
    let turn = turn?;
    shown?;
    if turn.outcome != Some(TurnOutcome::Completed) || turn.calls == 0 {
        let cause = anyhow::anyhow!("the demo failed: the turn ended as {:?}", turn.outcome);
        return Err(Failure { code: exit::SOFTWARE, cause });
    }
    outln!("\n{}", render::dim(&format!("{} tool calls crossed the bus.", turn.calls)))?;
    outln!("{NEXT}")?;
    Ok(exit::OK)
}

/// Shows the results of the sub-agents, where they worked and what they spent.
async fn show_team(
    conversation: &Conversation,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    conversation.await_background(interrupts).await?;
    outln!("\n{}", render::dim("The sub-agents, as `rockbot tasks list` shows those of a fleet:"))?;
    let request = ConversationRequest::Tasks {};
    let response = conversation.client.request(&conversation.agent, &request).await?;
    if let ConversationResponse::Tasks { tasks } = response {
        tasks::list(&tasks, false)?;
    }
    Ok(())
}

/// Creates the temporary directory with the demo's files.
fn create_files() -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("rockbot-demo").tempdir()?;
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

fn print_introduction(folder: &Path, prompt: &str) -> io::Result<()> {
    outln!(
        "{}",
        render::dim(&format!(
            "An agent and a tool handler run in this process, connected by an in-memory bus.\nThe \
             tools of the handler work in {}.\n",
            folder.display()
        ))
    )?;
    let bold = anstyle::Style::new().bold();
    outln!("{bold}> {prompt}{bold:#}\n")
}
