//! The bridge's side of a session, as the protocol's conformance suite drives it: connects to the
//! server whose URL is the last argument, calls every tool that it lists, and ends.

use std::{process::ExitCode, time::Duration};

use rockbot_contracts::{AgentName, SessionId, mcp::McpServerDetailsRequest};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServersFile, transport::DialPolicy};
use rockbot_tools::{ToolContext, mcp::McpGateway};
use serde_json::{Map, Value, json};

/// How long the server may take to be there.
const WITHIN: Duration = Duration::from_secs(30);
const SERVER: &str = "suite";

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let url = std::env::args().next_back().unwrap_or_default();
    // The suite says which revision it is about; the older one knows only those with a handshake.
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let protocol = if version.as_str() >= "2026" { "stateless" } else { "handshake" };
    let entry = json!({"url": url, "protocol": protocol});
    let file = json!({"mcpServers": {SERVER: entry}}).to_string();
    let servers = ServersFile::parse(file.as_bytes(), |_| None)?;
    let allow_private = vec!["127.0.0.0/8".parse()?, "::1/128".parse()?];
    let dial = DialPolicy { allow_plain_http: true, allow_private, ..DialPolicy::default() };
    let bridge = Bridge::new(BridgeOptions { dial, ..BridgeOptions::default() });
    bridge.apply(servers).await;
    bridge.settled(WITHIN).await;
    let status = bridge.servers().remove(0);
    println!("{status:?}");
    let request = McpServerDetailsRequest { server_name: SERVER.to_owned(), tool_name: None };
    let tools = bridge.details(request).await.map(|details| details.tools).unwrap_or_default();
    for tool in &tools {
        let caller = AgentName::new("conformance")?;
        let mut context = ToolContext::new(&tool.name, SessionId::generate(), caller);
        context.deadline = tokio::time::Instant::now() + WITHIN;
        let arguments = example(&tool.parameters);
        println!("{} {arguments}", tool.name);
        println!("{:?}", bridge.call(SERVER, &tool.name, arguments, &context).await);
    }
    bridge.stop().await;
    Ok(if status.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Arguments that a schema asks for.
fn example(schema: &Value) -> Value {
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => example(property),
            _ => json!("example"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}
