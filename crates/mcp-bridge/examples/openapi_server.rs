//! Offers an `OpenAPI` document as a server, and prints the size of its index entry and how many of all operations
//! a search by their description finds: `cargo run -p rockbot-mcp-bridge --example openapi_server -- DOCUMENT`
#![allow(clippy::print_stdout, reason = "the program reports to a terminal")]

use anyhow::{Context as _, Result, ensure};
use rockbot_contracts::mcp::{McpServerDetailsRequest, McpToolDefinition};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServersFile};
use rockbot_memory::Ranker;
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::json;

/// As many as `mcp_find_tools` returns.
const FOUND: usize = 10;

#[tokio::main]
async fn main() -> Result<()> {
    let document = std::env::args().nth(1).context("usage: openapi_server DOCUMENT")?;
    let servers = json!({"mcpServers": {"api": {"openapi": document}}}).to_string();
    let bridge = Bridge::new(BridgeOptions::default());
    bridge.apply(ServersFile::parse(servers.as_bytes(), |_| None)?).await;
    let mut index = McpGateway::index(&*bridge);
    let summary = loop {
        if let Some(summary) = index.borrow_and_update().get("api").cloned() {
            break summary;
        }
        let reason = bridge.servers().remove(0).reason;
        ensure!(reason.is_none(), "the document cannot be offered: {reason:?}");
        index.changed().await?;
    };
    let request =
        McpServerDetailsRequest { server_name: "api".to_owned(), tool_name: None, after: None };
    let details = McpGateway::details(&*bridge, request).await.context("no definitions")?;
    let bytes = serde_json::to_vec(&summary)?.len();
    println!("operations offered    {}", summary.tool_count);
    println!("operations rejected   {}", summary.rejected_tools.len());
    println!("index entry           {bytes} bytes, with {} names", summary.tool_names.len());
    println!("definitions           {} bytes", serde_json::to_vec(&details.tools)?.len());
    print_found(&details.tools);
    bridge.stop().await;
    Ok(())
}

/// Searches for each operation by the first line of its description.
fn print_found(tools: &[McpToolDefinition]) {
    let text = |McpToolDefinition { model_name, description, .. }: &McpToolDefinition| {
        format!("{model_name} {model_name} {model_name} {description}")
    };
    // One index serves all searches. It ranks as `Ranker::rank` does.
    let index = Ranker::from_texts(tools.iter().map(text));
    let (mut first, mut found) = (0, 0);
    for (number, tool) in tools.iter().enumerate() {
        let query = tool.description.lines().next().unwrap_or_default();
        let ranked = index.search(query, FOUND);
        let place = ranked.iter().position(|found| found.text == number);
        first += usize::from(place == Some(0));
        found += usize::from(place.is_some());
    }
    let total = tools.len();
    println!("found by description  {found}/{total} among the first {FOUND}, {first} first");
}
