//! `rockbot mcp`: lists MCP servers, calls their tools, adds and removes servers.

mod add;
mod check;
mod client_locations;
mod content;
mod import;
mod list;
mod login;
mod search;
mod serve;
mod servers_file;

use std::time::Duration;

use rockbot_contracts::mcp::{
    McpConnection, McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpRejectedTool,
    McpRenamedTool, McpServerDetails, McpServerDetailsRequest, McpServerState,
};
use rockbot_service::exit;
use rockbot_tool_rpc::mcp::{McpServerReport, McpServerTools};
use rockbot_tools::ToolProvider;
use serde_json::json;

use crate::{
    arguments::Mcp,
    failure::{Failure, OrExit, Outcome},
    fleet::{Fleet, McpServers},
    print::{note, outln},
    render,
    settings::Settings,
    tools,
};

/// The caller name of the command on the bus.
const CALLER: &str = "cli";

pub(crate) async fn run(settings: &Settings, command: Mcp, json: bool) -> Outcome {
    // Validated before anything starts.
    let arguments = match &command {
        Mcp::Check { file } => return check::run(settings, file, json).await,
        Mcp::Import { files, into, dry_run } => {
            return import::run(settings, files.clone(), into.clone(), *dry_run, json);
        }
        Mcp::Login { server, scopes } => {
            return login::run(settings, server, scopes, json).await;
        }
        Mcp::Serve(options) => return Box::pin(serve::run(settings, options)).await,
        Mcp::Call { arguments, .. } => tools::read_arguments(arguments.as_deref())?,
        Mcp::Search { words } => return search::run(settings, words, json).await,
        Mcp::Add { server, url, command, name, into, dry_run, yes }
            if settings.embeds() || into.is_some() =>
        {
            let (server, url, command) = (server.clone(), url.clone(), command.clone());
            let source = add::Source { server, url, command, name: name.clone() };
            let options = add::Options { into: into.clone(), dry_run: *dry_run, yes: *yes };
            return add::run(settings, source, options, json).await;
        }
        Mcp::Add { name, dry_run, .. } if *dry_run || name.is_some() => {
            return Err(Failure::usage(
                "--dry-run and --name are for a server file: name it with --into; with --bus, the server \
                 is registered in the running fleet under NAME",
            ));
        }
        Mcp::Add { url: None, command, .. } if command.is_empty() => {
            return Err(Failure::usage(
                "a running fleet needs --url or a command; to write a server file, name it with --into",
            ));
        }
        Mcp::Remove { .. } if settings.embeds() => {
            return Err(Failure::usage(
                "an embedded fleet ends with this command; name a running fleet with --bus, or remove \
                 the server from the server file",
            ));
        }
        _ => String::new(),
    };
    let fleet = Fleet::open(settings).await?;
    let one = match &command {
        Mcp::Describe { server, .. }
        | Mcp::Call { server, .. }
        | Mcp::Resources { server, .. }
        | Mcp::Read { server, .. }
        | Mcp::Prompt { server, .. } => Some(server.as_str()),
        _ => None,
    };
    let servers = fleet.mcp_servers(CALLER, one).await?;
    let outcome = match command {
        Mcp::List => list::run(&servers, json),
        Mcp::Describe { server, tool } => describe(&servers, &server, tool, json).await,
        Mcp::Call { server, tool, timeout, .. } => {
            let timeout = Duration::from_secs(timeout);
            call(&servers, &server, &tool, arguments, timeout, json).await
        }
        Mcp::Resources { server, templates } => {
            content::list_resources(&servers, server, templates, json).await
        }
        Mcp::Read { server, uri } => content::read(&servers, server, uri, json).await,
        Mcp::Prompt { server, prompt, arguments } => {
            content::prompt(&servers, &server, prompt, &arguments, json).await
        }
        Mcp::Add { server, url, command, .. } => {
            register(&servers, server, url, command, json).await
        }
        Mcp::Remove { server } => remove(&servers, &server, json).await,
        Mcp::Check { .. }
        | Mcp::Import { .. }
        | Mcp::Login { .. }
        | Mcp::Search { .. }
        | Mcp::Serve(_) => Ok(exit::OK),
    };
    drop(servers);
    fleet.close().await;
    outcome
}

/// Prints a line for each tool that a server lists and that cannot be offered.
fn print_rejected(server: &str, rejected: &[McpRejectedTool]) -> std::io::Result<()> {
    for McpRejectedTool { name, reason } in rejected {
        let (server, name) = (render::clean(server), render::clean(name));
        let reason = render::clean(reason);
        outln!("{} tool {name} of {server} is not offered: {reason}", render::bad("!"))?;
    }
    Ok(())
}

/// Prints a line for each tool whose name for models ends in a hash.
fn print_renamed(server: &str, renamed: &[McpRenamedTool], left_out: u32) -> std::io::Result<()> {
    let server = render::clean(server);
    for McpRenamedTool { name, model_name } in renamed {
        let (name, model_name) = (render::clean(name), render::clean(model_name));
        outln!("tool {name} of {server} is offered to models as {model_name}")?;
    }
    if left_out > 0 {
        outln!(
            "{left_out} more tools of {server} have another name for models; list them with `rockbot mcp \
             describe {server}`"
        )?;
    }
    Ok(())
}

async fn details(
    servers: &McpServers,
    server: &str,
    tool: Option<String>,
) -> Result<McpServerDetails, Failure> {
    let request =
        McpServerDetailsRequest { server_name: server.to_owned(), tool_name: tool, after: None };
    servers.gateway.details(request).await.map_err(|error| rejected_by(servers, &error))
}

async fn describe(servers: &McpServers, server: &str, tool: Option<String>, json: bool) -> Outcome {
    let single_tool = tool.is_some();
    let details = details(servers, server, tool).await?;
    if json {
        outln!("{}", render::json(&json!(details)))?;
        return Ok(exit::OK);
    }
    let bold = anstyle::Style::new().bold();
    if let ([tool], true) = (details.tools.as_slice(), single_tool) {
        outln!("{bold}{}{bold:#} of {}", render::clean(&tool.name), render::clean(server))?;
        outln!("{}\n", render::clean(&tool.description))?;
        let schema = serde_json::to_string_pretty(&tool.parameters).or_exit(exit::SOFTWARE)?;
        outln!("{bold}arguments{bold:#}\n{}", render::clean(&schema))?;
        return Ok(exit::OK);
    }
    let McpServerDetails { server, instructions, protocol_version, tools, .. } = details;
    outln!(
        "{bold}{}{bold:#} — {}",
        render::clean(&server.name),
        render::clean(&server.display_name)
    )?;
    outln!("{}", render::clean(&server.summary))?;
    if let Some(version) = protocol_version {
        outln!("{}", render::dim(&format!("protocol {}", render::clean(&version))))?;
    }
    if let Some(instructions) = instructions {
        outln!("\n{}", render::clean(&instructions))?;
    }
    let rows = tools.iter().map(|tool| {
        let first = tool.description.lines().next().unwrap_or_default();
        vec![render::clean(&tool.name), tool.model_name.clone(), render::clean(first)]
    });
    outln!("\n{}", render::table(&["tool", "name for models", "description"], rows))?;
    print_rejected(&server.name, &server.rejected_tools)?;
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
    let offered = McpServerTools::new(details, &servers.gateway).list();
    let Some(tool) = offered.into_iter().next() else {
        return Err(Failure::unavailable(format!("MCP server {server} has no tool {tool}")));
    };
    tools::invoke_provided(tool, servers.name.clone(), arguments, timeout, json).await
}

async fn register(
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
        note!("{}", render::dim("connecting…"));
    }
    let added = servers.gateway.register(request).await.map_err(|error| rejected(&error))?;
    if json {
        outln!("{}", render::json(&json!(added)))?;
    } else {
        outln!("added {}: {} tools", render::clean(&added.name), added.tool_count)?;
    }
    Ok(exit::OK)
}

async fn remove(servers: &McpServers, server: &str, json: bool) -> Outcome {
    servers.gateway.unregister(server).await.map_err(|error| rejected(&error))?;
    if json {
        outln!("{}", json!({"removed": server}))?;
    } else {
        outln!("removed {}", render::clean(server))?;
    }
    Ok(exit::OK)
}

/// Returns the failure for a request about a server, with the reason if the server is not connected.
fn rejected_by(servers: &McpServers, error: &McpManageError) -> Failure {
    let reports = servers.gateway.states().borrow().clone();
    match disconnected(&reports, &error.server_name) {
        Some(message) if error.code != McpManageErrorCode::InvalidRequest => {
            Failure::unavailable(message)
        }
        _ => rejected(error),
    }
}

/// Describes why a server is connected at no bridge, or returns `None` if it is connected or no reason is known.
fn disconnected(reports: &[McpServerReport], server: &str) -> Option<String> {
    let states = || {
        let states = reports.iter().map(|report| &report.state);
        states.filter(|state| state.name.eq_ignore_ascii_case(server))
    };
    if states().any(|state| state.connection.is_usable()) {
        return None;
    }
    states().find_map(|McpServerState { name, connection, reason, .. }| {
        let (name, reason) = (render::clean(name), render::clean(reason.as_deref()?));
        Some(match connection {
            McpConnection::Invalid => {
                format!("the configuration of MCP server {name} is invalid: {reason}; correct it")
            }
            _ => format!(
                "MCP server {name} is not connected: {reason}; correct this and try again, or list the \
                 servers with `rockbot mcp list`"
            ),
        })
    })
}

/// Returns the failure for a request that the bridge rejected.
fn rejected(error: &McpManageError) -> Failure {
    let code = match error.code {
        McpManageErrorCode::NotFound | McpManageErrorCode::Unavailable => exit::UNAVAILABLE,
        McpManageErrorCode::InvalidRequest => exit::USAGE,
        _ => exit::ANSWERED_WITH_ERROR,
    };
    Failure { code, cause: anyhow::anyhow!("{}", render::clean(&error.message)) }
}
