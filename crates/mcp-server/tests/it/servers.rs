//! MCP servers of a bridge in memory, and their tools.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::ClientLifecycleMode;
use rockbot_contracts::{
    ToolHints,
    mcp::{
        McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetails,
        McpServerDetailsRequest, McpServerSummary, McpToolDefinition,
    },
};
use rockbot_mcp_server::McpServerSection;
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fixture::{Handler, client, text};

/// Servers whose tools are `issue_0`, `issue_1`, …
pub(crate) struct Servers(Arc<State>);

struct State {
    index: watch::Sender<McpIndex>,
    details: Mutex<Vec<McpServerDetails>>,
}

impl Servers {
    pub(crate) fn new() -> Self {
        let index = watch::Sender::new(McpIndex::default());
        Self(Arc::new(State { index, details: Mutex::default() }))
    }

    pub(crate) fn gateway(&self) -> Arc<dyn McpGateway> {
        self.0.clone()
    }

    /// Adds a server, or changes its tools.
    pub(crate) fn add(&self, name: &str, tools: usize) {
        let names: Vec<_> = (0..tools).map(|number| format!("issue_{number}")).collect();
        self.add_with(name, &names, "reads an issue");
    }

    /// Adds a server with these tools.
    pub(crate) fn add_with(&self, name: &str, tools: &[String], description: &str) {
        let definition = |tool: &String| McpToolDefinition {
            name: tool.clone(),
            model_name: format!("{name}__{tool}"),
            title: None,
            description: description.to_owned(),
            parameters: json!({"type": "object"}),
            output_schema: None,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        let server = McpServerSummary {
            name: name.to_owned(),
            display_name: name.to_owned(),
            summary: String::new(),
            tool_count: u32::try_from(tools.len()).unwrap(),
            tool_names: tools.to_vec(),
            rejected_tools: Vec::new(),
            renamed_tools: Vec::new(),
            renamed_left_out: 0,
            has_instructions: false,
            has_resources: false,
            prompts: Vec::new(),
            prompts_left_out: 0,
            exposure: None,
            fingerprint: format!("{}{description}", tools.join(",")),
        };
        let details = McpServerDetails {
            server: server.clone(),
            instructions: None,
            protocol_version: None,
            tools: tools.iter().map(definition).collect(),
            next: None,
        };
        let mut known = self.0.details.lock();
        known.retain(|other| other.server.name != name);
        known.push(details);
        drop(known);
        self.0.index.send_modify(|index| index.insert(server));
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.index.send_modify(|index| _ = index.remove(name));
    }
}

impl McpGateway for State {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.subscribe()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        let details = self.details.lock();
        let found = details.iter().find(|details| details.server.name == request.server_name);
        let found = found.cloned().ok_or_else(|| unsupported(&request.server_name));
        Box::pin(std::future::ready(found))
    }

    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let result = ToolResult::text(format!("{server} {tool} {arguments}"));
        Box::pin(std::future::ready(Ok(result.with_details(json!({"server": server})))))
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(std::future::ready(Err(unsupported(&request.server_name))))
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(std::future::ready(Err(unsupported(server))))
    }
}

fn unsupported(server: &str) -> McpManageError {
    McpManageError {
        code: McpManageErrorCode::NotFound,
        message: "unknown".to_owned(),
        server_name: server.to_owned(),
    }
}

#[tokio::test]
async fn taken_names_get_a_suffix_and_descriptions_name_their_author() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    let hidden = "reads\u{202e} an issue\u{1b}[31m";
    servers.add_with("a__b", &["c".to_owned()], hidden);
    servers.add_with("a", &["b__c".to_owned()], hidden);
    let fleet = handler.fleet_with(McpServerSection::default(), Some(servers.gateway())).await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let tools = session.peer().list_all_tools().await.unwrap();
    let of_servers: Vec<_> = tools.iter().filter(|tool| tool.name.starts_with("a__b__c")).collect();
    assert_eq!(of_servers.len(), 2, "{tools:?}");
    let mut results = Vec::new();
    for tool in of_servers {
        let description = tool.description.as_deref().unwrap();
        assert!(
            description.ends_with("Description by the server: reads an issue"),
            "{description}"
        );
        results.push(text(&session.call(&tool.name, json!({})).await).to_owned());
    }
    results.sort();
    assert_eq!(results, ["a b__c {}", "a__b c {}"]);
}
