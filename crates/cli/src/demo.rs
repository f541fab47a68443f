//! `rockbot demo`: a scripted model's tool calls cross the in-memory bus and come back.

use std::{fs, io, path::Path, sync::Arc};

use anyhow::Context;
use rockbot_agent::{AgentClient, AgentDefinition};
use rockbot_contracts::{InstanceId, SessionId, user::TurnOutcome};
use rockbot_llm::ScriptedModel;
use rockbot_service::exit;
use secrecy::SecretString;
use tempfile::TempDir;

use crate::{
    conversation::Conversation,
    ending::{Exits, Failure, Outcome},
    fleet::Fleet,
    host::Host,
    print::say,
    settings::Settings,
    show,
};

/// The turns that the scripted model plays; the tools it calls are real.
const SCRIPT: &str = include_str!("../../../examples/demo.toml");

const PROMPT: &str = "What is in this folder, and which files mention the bus?";

/// What the temporary folder holds.
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
That was a scripted model; the tools, the bus and the answers they brought back were real.
Next, a real model:
  OPENAI_API_KEY=…                                      cargo run -- chat
  OPENROUTER_API_KEY=…                                  cargo run -- chat
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3:8b  cargo run -- chat
  cargo xtask local-model     serves a small real one on this machine, without a key";

pub(crate) async fn run(mut settings: Settings) -> Outcome {
    let folder = prepare().context("cannot make a folder for the demo").exits(exit::SOFTWARE)?;
    settings.files.root = folder.path().to_owned();
    settings.bus.url = SecretString::from("memory");
    settings.memory.store = Some(SecretString::from("memory:"));
    let model = Arc::new(ScriptedModel::from_toml("demo", SCRIPT).exits(exit::SOFTWARE)?);
    let fleet = Fleet::embed(&settings).await?;
    let definition = AgentDefinition::assistant();
    let agent = definition.name.clone();
    let host = Host::start(&fleet, &settings, definition, model).await?;
    let proxy = InstanceId::generate();
    let client = AgentClient::connect(fleet.bus.clone(), &proxy).await.exits(exit::UNAVAILABLE)?;
    let session = SessionId::generate();
    let conversation = Conversation { client, agent, session, json: false, stats: false };
    introduce(folder.path())?;
    let told = conversation.say(PROMPT).await;
    drop(conversation);
    host.stop(settings.service.drain()).await;
    fleet.leave().await;
    folder.close().context("the temporary folder was not removed").exits(exit::SOFTWARE)?;
    let told = told?;
    if told.outcome != Some(TurnOutcome::Completed) || told.calls == 0 {
        let cause = anyhow::anyhow!("the demo did not end as it should: {:?}", told.outcome);
        return Err(Failure { code: exit::SOFTWARE, cause });
    }
    say!("\n{}", show::dim(&format!("{} tool calls crossed the bus.", told.calls)))?;
    say!("{NEXT}")?;
    Ok(exit::OK)
}

/// A temporary folder with something to find.
fn prepare() -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("rockbot-demo").tempdir()?;
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

fn introduce(folder: &Path) -> io::Result<()> {
    say!(
        "{}",
        show::dim(&format!(
            "An agent and a tool handler in this process, an in-memory bus between them.\nThe \
             handler's tools work in {}.\n",
            folder.display()
        ))
    )?;
    let bold = anstyle::Style::new().bold();
    say!("{bold}> {PROMPT}{bold:#}\n")
}
