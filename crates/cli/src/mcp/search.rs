//! `rockbot mcp search`: finds servers in the registry.

use rockbot_mcp_bridge::registry::{NewEntry, RegistryServer};
use rockbot_service::exit;
use serde_json::json;

use super::add::registry;
use crate::{
    failure::{Failure, Outcome},
    print::outln,
    render,
    settings::Settings,
};

/// The longest description in the table, in characters.
const MAX_DESCRIPTION_CHARS: usize = 100;

pub(super) async fn run(settings: &Settings, words: &[String], json: bool) -> Outcome {
    let found = registry(settings)?.search(words).await.map_err(Failure::unavailable)?;
    if json {
        let servers: Vec<_> = found.iter().map(to_json).collect();
        outln!("{}", render::json(&json!(servers)))?;
        return Ok(exit::OK);
    }
    if found.is_empty() {
        return Err(Failure::unavailable("the registry has no server with these words"));
    }
    let rows = found.iter().map(|server| {
        vec![
            render::clean(&server.name),
            render::clean(&server.version),
            command(server).unwrap_or_else(|problem| render::bad(&problem)),
            render::short_line(&server.description, MAX_DESCRIPTION_CHARS),
        ]
    });
    outln!("{}", render::table(&["server", "version", "command", "description"], rows))?;
    outln!("{}", render::dim("add one with: rockbot mcp add SERVER"))?;
    Ok(exit::OK)
}

/// Returns the command or URL of a server, or why it cannot be added.
fn command(server: &RegistryServer) -> Result<String, String> {
    let entry = NewEntry::from_server(server);
    entry.map(|new| render::clean(&new.command_line())).map_err(|_| "cannot be added".to_owned())
}

fn to_json(server: &RegistryServer) -> serde_json::Value {
    let new = NewEntry::from_server(server);
    let (entry, problem) = match &new {
        Ok(new) => (Some(&new.entry), None),
        Err(problem) => (None, Some(problem)),
    };
    json!({"name": server.name, "title": server.title, "description": server.description,
        "version": server.version, "entry": entry, "problem": problem})
}
