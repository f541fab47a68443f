//! The client for the protocol's conformance suite: connects a bridge to the server whose URL is the
//! last argument, and calls every listed tool. When the server requires a login, it acts as the user,
//! and then starts again with the new tokens.

#![allow(clippy::print_stdout, reason = "the suite records the output of its client")]

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

/// The time limit for each operation.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of concurrent calls.
const MAX_CONCURRENT_CALLS: usize = 8;
/// The maximum number of logins.
const MAX_LOGINS: usize = 3;
const SERVER: &str = "suite";
/// The URL of the client ID metadata document that the suite expects.
const CLIENT_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// The context that the suite passes to a client, for scenarios that need more than a URL.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SuiteContext {
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
    let context = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => SuiteContext::default(),
    };
    let entry = entry(&context);
    let tokens = tempfile::tempdir()?;
    for _ in 0..=MAX_LOGINS {
        let bridge = bridge(&entry, tokens.path()).await?;
        let is_connected = call_tools(&bridge, &context.tool_calls).await?;
        let login = bridge.log_in(SERVER, &[]).await;
        bridge.stop().await;
        match login? {
            Some(login) => log_in(login).await?,
            None if is_connected => return Ok(ExitCode::SUCCESS),
            None => break,
        }
    }
    Ok(ExitCode::FAILURE)
}

/// Returns the configuration of the server.
fn entry(context: &SuiteContext) -> Value {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let url = std::env::args().next_back();
    let mut entry = json!({"url": url});
    if scenario.starts_with("auth/") {
        let mut oauth = json!({"login": !scenario.starts_with("auth/client-credentials")});
        if let Some(id) = &context.client_id {
            oauth["clientId"] = json!(id);
        } else if scenario == "auth/basic-cimd" {
            oauth["clientId"] = json!(CLIENT_DOCUMENT);
        }
        if let Some(secret) = &context.client_secret {
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
    bridge.wait_until_settled(TIMEOUT).await;
    Ok(bridge)
}

/// Calls every tool, many concurrently, because the suite checks that calls do not mix. Returns whether
/// the server is connected.
async fn call_tools(bridge: &Bridge, calls: &[ToolCall]) -> Result<bool> {
    let status = bridge.servers().pop().context("the server is configured")?;
    println!("{status:?}");
    let request =
        McpServerDetailsRequest { server_name: SERVER.to_owned(), tool_name: None, after: None };
    let tools = bridge.details(request).await.map(|details| details.tools).unwrap_or_default();
    let mut requests = Vec::new();
    for tool in &tools {
        let given = calls.iter().filter(|call| call.name == tool.name);
        let given: Vec<_> = given.map(|call| call.arguments.clone()).collect();
        let arguments = if given.is_empty() { vec![example(tool, &tools)] } else { given };
        requests.extend(arguments.into_iter().map(|arguments| (tool.name.as_str(), arguments)));
    }
    let caller = AgentName::new("conformance")?;
    let call = async |(tool, arguments)| {
        let mut context = ToolContext::new(tool, SessionId::generate(), caller.clone());
        context.deadline = tokio::time::Instant::now() + TIMEOUT;
        println!("{tool} {arguments}");
        println!("{:?}", bridge.call(SERVER, tool, arguments, &context).await);
    };
    stream::iter(requests).for_each_concurrent(MAX_CONCURRENT_CALLS, call).await;
    Ok(status.ready)
}

/// Returns example arguments of a tool. A `schema` argument gets the schema of the first other tool, as
/// the bridge reports it.
fn example(tool: &McpToolDefinition, all: &[McpToolDefinition]) -> Value {
    let schema = all.iter().find(|other| other.name != tool.name).map(|tool| &tool.parameters);
    match (tool.parameters["properties"].get("schema"), schema) {
        (Some(_), Some(schema)) => json!({"schema": schema}),
        _ => example_object(&tool.parameters),
    }
}

fn example_object(schema: &Value) -> Value {
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => example_object(property),
            _ => json!("example"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

/// Logs in as the user: opens the URL, which the suite redirects at once.
#[expect(clippy::disallowed_methods, reason = "it stands for a browser")]
async fn log_in(login: Login) -> Result<()> {
    println!("logging in at {}", login.url());
    let client =
        reqwest::Client::builder().connect_timeout(TIMEOUT).read_timeout(TIMEOUT).build()?;
    let browser = client.get(login.url()).send();
    let (page, finished) = tokio::join!(browser, login.finish(TIMEOUT));
    page?;
    Ok(finished?)
}
