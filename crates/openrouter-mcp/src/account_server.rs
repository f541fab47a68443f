//! The tools as an MCP server, independent of the transport.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
        CompleteRequestParams, CompleteResult, ContentBlock, Implementation,
        ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
        ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, RequestMetaObject, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::RequestContext,
};
use rockbot_contracts::{TraceContext, trace};
use tracing::{Instrument, info_span};

use crate::{openrouter::OpenRouter, tools::AccountTool};

/// The cache lifetime of the tool list, which only changes with a new version of the program.
const LIST_TTL_MS: u64 = 3_600_000;

/// An MCP server that returns data from OpenRouter.
#[derive(Debug, Clone)]
pub struct AccountServer {
    openrouter: Arc<OpenRouter>,
}

impl AccountServer {
    /// Creates a server for the account of `openrouter`'s key.
    #[must_use]
    pub fn new(openrouter: OpenRouter) -> Self {
        Self { openrouter: Arc::new(openrouter) }
    }

    /// Rejects further calls, and returns when the running ones have finished.
    pub async fn drained(&self) {
        self.openrouter.drained().await;
    }

    /// Runs a tool. The error is the message for the model.
    async fn run(
        &self,
        tool: AccountTool,
        request: &CallToolRequestParams,
    ) -> Result<String, String> {
        let none = serde_json::Map::new();
        let arguments = request.arguments.as_ref().unwrap_or(&none);
        let query = tool.query(arguments).map_err(|problem| problem.to_string())?;
        self.openrouter.get(&query).await.map_err(|error| {
            let tool = tool.name();
            let source = std::error::Error::source(&error);
            tracing::warn!(tool, %error, source, "tool call failed");
            error.to_string()
        })
    }
}

impl ServerHandler for AccountServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new("rockbot-openrouter-mcp", env!("CARGO_PKG_VERSION"))
                    .with_title("OpenRouter account"),
            )
            .with_instructions(
                "Read-only data of one OpenRouter account. Every result is JSON text.",
            )
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        AccountTool::from_name(name).map(AccountTool::definition)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("the tool list has one page", None));
        }
        let tools = AccountTool::ALL.map(AccountTool::definition).into();
        Ok(ListToolsResult::with_all_items(tools)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = AccountTool::from_name(&request.name) else {
            return Err(ErrorData::invalid_params("unknown tool name", None));
        };
        let span = info_span!(
            target: trace::TARGET,
            "tools/call",
            otel.name = format!("tools/call {}", request.name),
            otel.kind = "server",
            mcp.method.name = "tools/call",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = &*request.name,
        );
        trace::continue_from(&span, &trace_of(&context.meta));
        let answer = tokio::select! {
            answer = self.run(tool, &request).instrument(span.clone()) => answer,
            () = context.ct.cancelled() => Err("cancelled".to_owned()),
        };
        if answer.is_err() {
            let error_type = if context.ct.is_cancelled() { "cancelled" } else { "tool_error" };
            trace::fail(&span, error_type);
        }
        let result = match answer {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(problem) => CallToolResult::error(vec![ContentBlock::text(problem)]),
        };
        Ok(result.into())
    }

    // rmcp answers these with empty lists; a server that does not offer them must say so.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// Returns the trace context of the caller, which travels in `_meta`.
fn trace_of(meta: &RequestMetaObject) -> TraceContext {
    TraceContext {
        parent: meta.get_traceparent().map(Into::into),
        state: meta.get_tracestate().map(Into::into),
    }
}
