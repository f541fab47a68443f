//! The tools that one agent may use, with who serves them.

use rockbot_contracts::{
    AgentName, ToolSource,
    conversation::{AgentOverview, AgentTool},
};
use rockbot_service::exit;
use rockbot_tool_rpc::catalog::{CatalogSnapshot, KnownHandler};
use serde_json::json;

use super::access::AgentAccess;
use crate::{
    failure::{OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
    tools::hints,
};

/// Lists the tools that the agent `name` may use.
pub(crate) async fn list_tools(mut settings: Settings, name: String, json: bool) -> Outcome {
    let agent = AgentName::new(name.as_str()).or_exit(exit::USAGE)?;
    settings.agent.name = name;
    let access = Box::pin(AgentAccess::open(settings)).await?;
    let outcome = list(&access, &agent, json).await;
    access.close().await;
    outcome
}

async fn list(access: &AgentAccess, agent: &AgentName, json: bool) -> Outcome {
    access.fleet().expect_agent(agent).await?;
    let catalog = access.catalog().await?;
    let overview = access.overview(agent).await?;
    if json {
        let entries: Vec<_> = overview
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name, "source": tool.source, "description": tool.summary,
                    "hints": tool.hints, "servedBy": served_by(tool, agent, &catalog),
                })
            })
            .collect();
        outln!("{}", render::json(&json!(entries)))?;
    } else {
        let headings = ["tool", "source", "served by", "effect", "description"];
        let rows = overview.tools.iter().map(|tool| {
            vec![
                render::clean(&tool.name),
                render::clean(&tool.source.text()),
                render::clean(&served_by(tool, agent, &catalog)),
                hints(tool.hints).to_owned(),
                render::clean(&tool.summary),
            ]
        });
        outln!("{}", render::table(&headings, rows))?;
    }
    note_further(&overview);
    Ok(exit::OK)
}

fn note_further(overview: &AgentOverview) {
    if overview.more_tools > 0 {
        note!("{} not shown", render::count(overview.more_tools as usize, "further tool"));
    }
}

/// Returns who runs the calls of a tool.
fn served_by(tool: &AgentTool, agent: &AgentName, catalog: &CatalogSnapshot) -> String {
    match &tool.source {
        ToolSource::Mcp(server) => format!("MCP server {server}"),
        ToolSource::Agent(other) => format!("agent {other}"),
        _ if !tool.is_announced => format!("agent {agent}"),
        _ => match catalog.owner(&tool.name) {
            None => "a handler that is not known here".to_owned(),
            Some(pool) => {
                let handlers: Vec<_> = catalog
                    .handlers()
                    .filter(|handler| handler.pool == *pool)
                    .filter(|handler| handler.tools.iter().any(|one| one.name == tool.name))
                    .map(KnownHandler::name)
                    .collect();
                handlers.join(", ")
            }
        },
    }
}
