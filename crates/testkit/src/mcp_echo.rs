//! An MCP server with one tool that returns its arguments, for benchmarks.

#![allow(clippy::print_stdout, reason = "the server prints its URL")]

use std::{process::Stdio, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpService, streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
};

/// A server with the tool `echo`.
#[derive(Debug, Clone)]
pub struct McpEcho;

impl ServerHandler for McpEcho {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "Echoes", Arc::new(schema))]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = Value::Object(call.arguments.unwrap_or_default()).to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

impl McpEcho {
    /// Serves it over HTTP, and prints its URL.
    pub async fn serve_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("http://{}/mcp", listener.local_addr().expect("an address"));
        let service: StreamableHttpService<Self, LocalSessionManager> =
            StreamableHttpService::new(|| Ok(Self), Arc::default(), Default::default());
        let router = axum::Router::new().nest_service("/mcp", service);
        axum::serve(listener, router).await.expect("served");
    }

    /// Starts this program with an argument with which it calls [`serve_http`](Self::serve_http), and returns the URL.
    pub async fn spawn_http(argument: &str) -> (Child, String) {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.arg(argument).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn().expect("a server");
        let mut url = String::new();
        let stdout = server.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut url).await.expect("its URL");
        (server, url.trim().to_owned())
    }
}
