//! The MCP server, independent of the transport.

use std::{borrow::Cow, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
        CompleteRequestParams, CompleteResult, ContentBlock, GetPromptRequestParams,
        GetPromptResponse, Implementation, JsonObject, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, RequestMetaObject, ServerCapabilities,
        ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use rockbot_contracts::{Executed, ToolCallId, ToolSource, TraceContext, trace};
use serde_json::json;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{Instrument, info_span};

use crate::{
    call_result::{self, CallFacts},
    changes,
    client::McpClient,
    fleet::McpFleet,
    output_resource, prompts, search, search_tools,
    tool_call::CallAttempt,
    tool_definition, tool_listing,
};

/// Cache lifetime of lists. Changes are notified as well.
const LIST_TTL_MS: u64 = 5_000;

const INSTRUCTIONS: &str = "Tools, agents and guides of a RockBot fleet. A failed call has \
    structuredContent.error with `code`, `executed` (no, yes or unknown: whether the tool ran) and \
    `isRetryable`; do not repeat a call blindly unless `executed` is no. A result that is too large is \
    replaced by a handle and an outline: read it with the tool tool_output, or as the linked resource. If \
    there is a tool rockbot_find_tools, the list of tools is not complete: search before giving up.";

/// Serves one client: over HTTP one of its sessions or requests, over standard input and output the parent
/// process.
pub(crate) struct FleetServer {
    fleet: Arc<McpFleet>,
    client: McpClient,
    /// Identifies the connection, if it has a single client.
    session: Option<String>,
    /// Tasks of the connection.
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl FleetServer {
    /// Creates a server for a client. `session` identifies the connection, unless requests name their session.
    pub(crate) fn new(fleet: Arc<McpFleet>, client: McpClient, session: Option<String>) -> Self {
        let stop = CancellationToken::new();
        let _stop_on_drop = stop.clone().drop_guard();
        Self { fleet, client, session, tasks: TaskTracker::new(), stop, _stop_on_drop }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let attempt = CallAttempt::new(context, self.session.as_deref());
        let attempt = attempt.map_err(|error| not_executed(error.to_string()))?;
        let arguments = request.arguments.unwrap_or_default();
        let (name, arguments) = match &*request.name {
            search_tools::FIND => return Ok(self.find(&arguments)),
            search_tools::INVOKE => match search_tools::invoked(arguments) {
                Ok(call) => call,
                Err(message) => {
                    return Ok(call_result::invalid_arguments(message, &search_facts()));
                }
            },
            name => (name.to_owned(), arguments),
        };
        let tool = self.fleet.find_tool(&name).await;
        let tool = tool.filter(|tool| self.client.permits(tool.registration()));
        // A client does not learn of tools that it may not use.
        let tool = tool
            .ok_or_else(|| not_executed("unknown tool; tools/list shows those of this client"))?;
        let arguments =
            serde_json::to_string(&arguments).map_err(|error| not_executed(error.to_string()))?;
        Ok(attempt.run(&self.fleet, &self.client, &tool, arguments, context).await)
    }

    fn find(&self, arguments: &JsonObject) -> CallToolResult {
        match search::find(&self.fleet, &self.client, arguments) {
            Ok(found) => CallToolResult::success(vec![ContentBlock::text(found)]),
            Err(message) => call_result::invalid_arguments(message, &search_facts()),
        }
    }
}

/// Returns the error for parameters of a call at fault: its tool did not run.
fn not_executed(message: impl Into<Cow<'static, str>>) -> ErrorData {
    ErrorData::invalid_params(message, Some(json!({"executed": Executed::No})))
}

/// Returns the facts about a call of a search tool, which this process answers.
fn search_facts() -> CallFacts {
    CallFacts { id: ToolCallId::generate(), source: ToolSource::Internal, output: None }
}

impl ServerHandler for FleetServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("rockbot", env!("CARGO_PKG_VERSION")).with_title("RockBot"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    /// Notifies the client of changed lists from now on.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // One task for a connection, whatever its client sends.
        if !self.tasks.is_empty() || self.stop.is_cancelled() {
            return;
        }
        let (fleet, client) = (self.fleet.clone(), self.client.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(changes::notify_session(fleet, client, context.peer, stop));
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tool = self.fleet.registry().get(name)?;
        let registration = tool.registration();
        self.client.permits(registration).then(|| tool_definition::definition(registration))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.fleet.loaded().await;
        let after = request.and_then(|request| request.cursor);
        let (tools, next) = tool_listing::page(&self.fleet, &self.client, after.as_deref());
        let mut page = ListToolsResult::with_all_items(tools)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private);
        page.next_cursor = next;
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let span = info_span!(
            target: trace::TARGET,
            "tools/call",
            otel.name = format!("tools/call {}", request.name),
            otel.kind = "server",
            mcp.method.name = "tools/call",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = &*request.name,
            rockbot.client = &**self.client.name(),
        );
        trace::continue_from(&span, &trace_of(&context.meta));
        let result = Box::pin(self.call(request, &context)).instrument(span.clone()).await;
        if context.ct.is_cancelled() {
            trace::fail(&span, "cancelled");
        } else if result.as_ref().map_or(true, |result| result.is_error == Some(true)) {
            trace::fail(&span, "tool_error");
        }
        result.map(Into::into)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        reject_cursor(request.as_ref())?;
        self.fleet.loaded().await;
        let prompts = prompts::prompts(&self.fleet, &self.client);
        Ok(ListPromptsResult::with_all_items(prompts)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.fleet.loaded().await;
        let prompt = prompts::prompt(&self.fleet, &self.client, &request.name).await?;
        Ok(prompt.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        reject_cursor(request.as_ref())?;
        let known = self.fleet.outputs.list(self.client.name());
        let resources = known.iter().map(output_resource::resource).collect();
        Ok(ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        reject_cursor(request.as_ref())?;
        Ok(ListResourceTemplatesResult::with_all_items(vec![output_resource::template()])
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        tokio::select! {
            read = output_resource::read(&self.fleet, &self.client, &request.uri) => {
                Ok(read?.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
            }
            // The client does not read it.
            () = context.ct.cancelled() => Err(output_resource::not_found(&request.uri)),
        }
    }

    fn accepted_subscription_filter(
        &self,
        _requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        changes::notify_subscriber(self.fleet.clone(), self.client.clone(), &context).await;
        Ok(())
    }

    // rmcp answers it with an empty list; a server that does not offer completions must say so.
    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

fn reject_cursor(request: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    if request.is_some_and(|request| request.cursor.is_some()) {
        return Err(ErrorData::invalid_params("the list has one page", None));
    }
    Ok(())
}

/// Returns the trace context of the client, which travels in `_meta`.
fn trace_of(meta: &RequestMetaObject) -> TraceContext {
    TraceContext {
        parent: meta.get_traceparent().map(Into::into),
        state: meta.get_tracestate().map(Into::into),
    }
}
