//! The commands of an interactive session.

use std::{io::Write, path::Path};

use rockbot_agent::ConversationRequestError;
use rockbot_contracts::{AgentName, ConversationRequest, ConversationResponse, TurnUsage};
use rockbot_service::exit;

use super::commands::{self, SlashCommand};
use crate::{
    conversation::Conversation,
    conversation_history,
    failure::{Failure, OrExit},
    fleet::Fleet,
    print::{note, outln},
    private_file, render,
    tools::hints,
};

/// The session that a command changes.
pub(super) struct Target<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) conversation: &'a mut Conversation,
    /// Usage of the last turn; none in a new conversation.
    pub(super) usage: &'a mut Option<TurnUsage>,
}

/// Runs a command other than those that send something with a message.
pub(super) async fn run(target: Target<'_>, command: SlashCommand) -> Result<(), Failure> {
    let Target { fleet, conversation, usage } = target;
    match command {
        SlashCommand::Help => outln!("{}", commands::help())?,
        SlashCommand::New => {
            let agent = conversation.agent.clone();
            conversation.restart(agent).await;
            *usage = None;
            note!("a new conversation starts with the next message");
        }
        SlashCommand::Agent(None) => outln!("{}", conversation.agent)?,
        SlashCommand::Agent(Some(name)) => {
            let agent = AgentName::new(name).or_exit(exit::USAGE)?;
            fleet.expect_agent(&agent).await?;
            note!("a new conversation with {agent} starts with the next message");
            conversation.restart(agent).await;
            conversation.display.model = None;
            *usage = None;
        }
        SlashCommand::Tools => list_tools(conversation).await?,
        SlashCommand::Last(number) => match conversation.log.lock().await.describe_last(number) {
            Some(calls) => outln!("{calls}")?,
            None => note!("no tool was called in this conversation since the session started"),
        },
        SlashCommand::Cost => match usage {
            Some(usage) => outln!("{}", render::usage(usage))?,
            None => note!("no turn has reported its usage yet"),
        },
        SlashCommand::Export(file) => export(conversation, file.as_deref()).await?,
        SlashCommand::Image(_) | SlashCommand::Prompt | SlashCommand::Retry => {}
    }
    Ok(())
}

async fn list_tools(conversation: &Conversation) -> Result<(), Failure> {
    let Conversation { client, agent, .. } = conversation;
    let response = client.request(agent, &ConversationRequest::Agent {}).await?;
    let ConversationResponse::Agent { agent: overview } = response else {
        return Err(ConversationRequestError::UnexpectedResponse.into());
    };
    let rows = overview.tools.iter().map(|tool| {
        vec![
            render::clean(&tool.name),
            render::clean(&tool.source.text()),
            hints(tool.hints).to_owned(),
            render::clean(&tool.summary),
        ]
    });
    outln!("{}", render::table(&["tool", "source", "effect", "description"], rows))?;
    if overview.more_tools > 0 {
        note!("{} not shown", render::count(overview.more_tools as usize, "further tool"));
    }
    Ok(())
}

/// Writes the conversation to a new file, which only its owner can read.
async fn export(conversation: &Conversation, file: Option<&str>) -> Result<(), Failure> {
    let named = format!("rockbot-{}.jsonl", conversation.session);
    let path = Path::new(file.unwrap_or(&named));
    let mut lines = Vec::new();
    let (client, agent) = (&conversation.client, &conversation.agent);
    // A conversation that cannot be read leaves no file behind.
    conversation_history::for_each_line(client, agent, &conversation.session, |line| {
        writeln!(lines, "{line}")
    })
    .await?;
    let mut target = private_file::create_new(path).or_exit(exit::USAGE)?;
    target.write_all(&lines)?;
    note!("{} written", render::path(path));
    Ok(())
}
