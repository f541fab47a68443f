//! The bridge's side of a session, as the protocol's conformance suite drives it: connects to the
//! server whose URL is the last argument, calls every tool that it lists, and ends. Where the server
//! wants a person to log in, it plays that person, and begins anew with what was given.

#![allow(clippy::print_stdout, reason = "the suite keeps what its client prints")]

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures_util::{StreamExt, stream};
use rockbot_contracts::{
    AgentName, SessionId,
    mcp::{McpServerDetailsRequest, McpToolDefinition},
};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServersFile, oauth::Login, transport::DialPolicy};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::ToolContext;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How long the server may take for anything.
const WITHIN: Duration = Duration::from_secs(20);
/// How many tools are called at once.
const MOST_CALLS: usize = 8;
/// How often a person logs in at most.
const MOST_LOGINS: usize = 3;
const SERVER: &str = "suite";
/// Where the suite pretends to have found a document about this client.
const CLIENT_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// What the suite hands to a client, where a scenario needs more than a URL.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Handed {
    #[serde(rename = "client_id")]
    client_id: Option<String>,
    #[serde(rename = "client_secret")]
    client_secret: Option<String>,
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    arguments: Value,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let handed = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Handed::default(),
    };
    let entry = entry(&handed);
    let tokens = tempfile::tempdir()?;
    for _ in 0..=MOST_LOGINS {
        let bridge = bridge(&entry, tokens.path()).await?;
        let is_connected = use_server(&bridge, &handed.tool_calls).await?;
        let login = bridge.log_in(SERVER).await;
        bridge.stop().await;
        match login? {
            Some(login) => log_in(login).await?,
            None if is_connected => return Ok(ExitCode::SUCCESS),
            None => break,
        }
    }
    Ok(ExitCode::FAILURE)
}

/// The server, as an operator would configure it.
fn entry(handed: &Handed) -> Value {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let scenario = variable("MCP_CONFORMANCE_SCENARIO");
    // The suite says which revision it is about; the older ones begin with a handshake.
    let version = variable("MCP_CONFORMANCE_PROTOCOL_VERSION");
    let protocol = if version.as_str() >= "2026" { "stateless" } else { "handshake" };
    let url = std::env::args().next_back();
    let mut entry = json!({"url": url, "protocol": protocol});
    if scenario.starts_with("auth/") {
        let mut oauth = json!({"login": !scenario.starts_with("auth/client-credentials")});
        if let Some(id) = &handed.client_id {
            oauth["clientId"] = json!(id);
        } else if scenario == "auth/basic-cimd" {
            oauth["clientId"] = json!(CLIENT_DOCUMENT);
        }
        if let Some(secret) = &handed.client_secret {
            oauth["clientSecret"] = json!(secret);
        }
        entry["oauth"] = oauth;
    }
    entry
}

async fn bridge(entry: &Value, tokens: &Path) -> Result<Arc<Bridge>> {
    let allow_private = vec!["127.0.0.0/8".parse()?, "::1/128".parse()?];
    let dial = DialPolicy { allow_plain_http: true, allow_private, ..DialPolicy::default() };
    let tokens = Some(tokens.to_owned());
    let bridge = Bridge::new(BridgeOptions { dial, tokens, ..BridgeOptions::default() });
    let file = json!({"mcpServers": {SERVER: entry}}).to_string();
    bridge.apply(ServersFile::parse(file.as_bytes(), |_| None)?).await;
    bridge.wait_until_settled(WITHIN).await;
    Ok(bridge)
}

/// Calls every tool, many at once: what one call carries must not get into another. Whether there is
/// a server to call.
async fn use_server(bridge: &Bridge, wanted: &[ToolCall]) -> Result<bool> {
    let status = bridge.servers().pop().context("the server is configured")?;
    println!("{status:?}");
    let request = McpServerDetailsRequest { server_name: SERVER.to_owned(), tool_name: None };
    let tools = bridge.details(request).await.map(|details| details.tools).unwrap_or_default();
    let mut calls = Vec::new();
    for tool in &tools {
        let of_tool = wanted.iter().filter(|call| call.name == tool.name);
        let wanted: Vec<_> = of_tool.map(|call| call.arguments.clone()).collect();
        let arguments = if wanted.is_empty() { vec![example(tool, &tools)] } else { wanted };
        calls.extend(arguments.into_iter().map(|arguments| (tool.name.as_str(), arguments)));
    }
    let caller = AgentName::new("conformance")?;
    let call = async |(tool, arguments)| {
        let mut context = ToolContext::new(tool, SessionId::generate(), caller.clone());
        context.deadline = tokio::time::Instant::now() + WITHIN;
        println!("{tool} {arguments}");
        println!("{:?}", bridge.call(SERVER, tool, arguments, &context).await);
    };
    stream::iter(calls).for_each_concurrent(MOST_CALLS, call).await;
    Ok(status.ready)
}

/// Arguments that a tool asks for. One that wants a schema gets that of the first tool, as the
/// bridge passes it on.
fn example(tool: &McpToolDefinition, all: &[McpToolDefinition]) -> Value {
    let schema = all.iter().find(|other| other.name != tool.name).map(|tool| &tool.parameters);
    match (tool.parameters["properties"].get("schema"), schema) {
        (Some(_), Some(schema)) => json!({"schema": schema}),
        _ => example_of(&tool.parameters),
    }
}

fn example_of(schema: &Value) -> Value {
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => example_of(property),
            _ => json!("example"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

/// What a person does: opens the URL, and the suite sends the browser back at once.
async fn log_in(login: Login) -> Result<()> {
    println!("logs in at {}", login.url());
    let client = reqwest::Client::builder().connect_timeout(WITHIN).read_timeout(WITHIN).build()?;
    let browser = client.get(login.url()).send();
    let (page, finished) = tokio::join!(browser, login.finish(WITHIN));
    page?;
    Ok(finished?)
}
