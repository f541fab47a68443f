//! `rockbot mcp`: what MCP servers offer, calls of their tools, and which servers there are.

mod check;
mod login;

use std::{sync::Arc, time::Duration};

use rockbot_contracts::mcp::{
    McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetails,
    McpServerDetailsRequest,
};
use rockbot_service::exit;
use rockbot_tool_rpc::mcp::McpTool;
use rockbot_tools::ToolRegistry;
use serde_json::json;

use crate::{
    arguments::Mcp,
    ending::{Exits, Failure, Outcome},
    fleet::{Fleet, McpServers},
    print::{note, say},
    settings::Settings,
    show, tools,
};

/// The name that the command has on the bus.
const CALLER: &str = "cli";

pub(crate) async fn run(settings: &Settings, command: Mcp, json: bool) -> Outcome {
    // Read before anything starts: a typo costs nothing.
    let arguments = match &command {
        Mcp::Check { file } => return check::run(settings, file, json).await,
        Mcp::Login { server } => return login::run(settings, server, json).await,
        Mcp::Call { arguments, .. } => tools::read_arguments(arguments.as_deref())?,
        Mcp::Add { .. } | Mcp::Remove { .. } if settings.embeds() => {
            return Err(Failure::usage(
                "an embedded fleet ends with this command; name a running one with --bus, or write \
                 the server into its file of servers",
            ));
        }
        _ => String::new(),
    };
    let fleet = Fleet::reach(settings).await?;
    let one = match &command {
        Mcp::Describe { server, .. } | Mcp::Call { server, .. } => Some(server.as_str()),
        _ => None,
    };
    let servers = fleet.mcp_servers(CALLER, one).await?;
    let outcome = match command {
        Mcp::List => list(&servers, json),
        Mcp::Describe { server, tool } => describe(&servers, &server, tool, json).await,
        Mcp::Call { server, tool, timeout, .. } => {
            let timeout = Duration::from_secs(timeout);
            call(&servers, &server, &tool, arguments, timeout, json).await
        }
        Mcp::Add { server, url, command } => add(&servers, server, url, command, json).await,
        Mcp::Remove { server } => remove(&servers, &server, json).await,
        Mcp::Check { .. } | Mcp::Login { .. } => Ok(exit::OK),
    };
    drop(servers);
    fleet.leave().await;
    outcome
}

fn list(servers: &McpServers, json: bool) -> Outcome {
    let index = servers.gateway.index().borrow().clone();
    if json {
        let all: Vec<_> = index.servers().collect();
        say!("{}", show::json(&json!(all)))?;
        return Ok(exit::OK);
    }
    if index.is_empty() {
        return Err(Failure::unavailable(
            "no MCP server is connected; name a file of servers in mcp.config, or start \
             rockbot-mcp-bridge on this bus",
        ));
    }
    let rows = index.servers().map(|server| {
        vec![show::clean(&server.name), server.tool_count.to_string(), show::clean(&server.summary)]
    });
    say!("{}", show::table(&["server", "tools", "what for"], rows))?;
    Ok(exit::OK)
}

async fn details(
    servers: &McpServers,
    server: &str,
    tool: Option<String>,
) -> Result<McpServerDetails, Failure> {
    let request = McpServerDetailsRequest { server_name: server.to_owned(), tool_name: tool };
    servers.gateway.details(request).await.map_err(|error| refused(&error))
}

async fn describe(servers: &McpServers, server: &str, tool: Option<String>, json: bool) -> Outcome {
    let of_one = tool.is_some();
    let details = details(servers, server, tool).await?;
    if json {
        say!("{}", show::json(&json!(details)))?;
        return Ok(exit::OK);
    }
    let bold = anstyle::Style::new().bold();
    if let ([tool], true) = (details.tools.as_slice(), of_one) {
        say!("{bold}{}{bold:#} of {}", show::clean(&tool.name), show::clean(server))?;
        say!("{}\n", show::clean(&tool.description))?;
        let schema = serde_json::to_string_pretty(&tool.parameters).exits(exit::SOFTWARE)?;
        say!("{bold}arguments{bold:#}\n{}", show::clean(&schema))?;
        return Ok(exit::OK);
    }
    let McpServerDetails { server, instructions, protocol_version, tools } = details;
    say!("{bold}{}{bold:#} — {}", show::clean(&server.name), show::clean(&server.display_name))?;
    say!("{}", show::clean(&server.summary))?;
    if let Some(version) = protocol_version {
        say!("{}", show::dim(&format!("protocol {}", show::clean(&version))))?;
    }
    if let Some(instructions) = instructions {
        say!("\n{}", show::clean(&instructions))?;
    }
    let rows = tools.iter().map(|tool| {
        let first = tool.description.lines().next().unwrap_or_default();
        vec![show::clean(&tool.name), tool.model_name.clone(), show::clean(first)]
    });
    say!("\n{}", show::table(&["tool", "name for models", "description"], rows))?;
    Ok(exit::OK)
}

async fn call(
    servers: &McpServers,
    server: &str,
    tool: &str,
    arguments: String,
    timeout: Duration,
    json: bool,
) -> Outcome {
    let details = details(servers, server, Some(tool.to_owned())).await?;
    let Some(definition) = details.tools.first() else {
        return Err(Failure::unavailable(format!("{server} has no tool {tool}")));
    };
    let registry = Arc::new(ToolRegistry::new());
    let name = &details.server.name;
    let one = McpTool::new(name, definition, servers.gateway.clone());
    registry.register(Arc::new(one)).exits(exit::UNAVAILABLE)?;
    let registration = definition.registration(name);
    let caller = servers.name.clone();
    tools::invoke(registry, registration, caller, arguments, timeout, json).await
}

async fn add(
    servers: &McpServers,
    server: String,
    url: Option<String>,
    command: Vec<String>,
    json: bool,
) -> Outcome {
    let mut words = command.into_iter();
    let request = McpRegisterServerRequest {
        server_name: server,
        command: words.next(),
        arguments: words.collect(),
        url,
    };
    if !json {
        note!("{}", show::dim("connecting…"));
    }
    let added = servers.gateway.register(request).await.map_err(|error| refused(&error))?;
    if json {
        say!("{}", show::json(&json!(added)))?;
    } else {
        say!("added {}: {} tools", show::clean(&added.name), added.tool_count)?;
    }
    Ok(exit::OK)
}

async fn remove(servers: &McpServers, server: &str, json: bool) -> Outcome {
    servers.gateway.unregister(server).await.map_err(|error| refused(&error))?;
    if json {
        say!("{}", json!({"removed": server}))?;
    } else {
        say!("removed {}", show::clean(server))?;
    }
    Ok(exit::OK)
}

/// What a bridge refused, with the exit code for it.
fn refused(error: &McpManageError) -> Failure {
    let code = match error.code {
        McpManageErrorCode::NotFound | McpManageErrorCode::Unavailable => exit::UNAVAILABLE,
        McpManageErrorCode::InvalidRequest => exit::USAGE,
        _ => exit::ANSWERED_WITH_ERROR,
    };
    Failure { code, cause: anyhow::anyhow!("{}", show::clean(&error.message)) }
}
