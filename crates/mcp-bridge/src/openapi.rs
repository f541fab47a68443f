//! OpenAPI documents as servers: their operations are the tools, and calls are HTTP requests.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::mcp::McpToolDefinition;
use rockbot_rest::{ApiClient, ApiEntry, ApiTool, ApiTools, DocumentWatch};
use rockbot_tools::{
    ToolContext, ToolFailure, ToolHints, ToolResult,
    names::{DEFAULT_NAME_BYTES, namespaced},
};
use serde_json::Value;
use tracing::warn;

use crate::{
    call_error::CallError,
    config::{ServerConfig, with_document_key},
    definitions::{Definitions, ListLimits},
    server_session::{ServerInfo, ServerSession},
};

/// The limits of a document.
const LIMITS: ListLimits = ListLimits { tools: 2000, remedy: "include and exclude" };

/// The operations of a document.
pub(crate) struct ApiSession {
    entry: ApiEntry,
    client: ApiClient,
    api: ApiTools,
    /// The tools by name. Of tools with the same name, the first one.
    tools: BTreeMap<String, ApiTool>,
    info: ServerInfo,
}

impl ApiSession {
    /// Reads the document of a server. `client` is shared by all servers of the bridge.
    ///
    /// # Errors
    /// A message for the operator.
    ///
    /// # Cancellation
    /// An import that has begun continues on its thread, for up to a minute.
    pub(crate) async fn open(
        server: &str,
        entry: &ApiEntry,
        client: ApiClient,
    ) -> Result<Self, String> {
        Self::read(server, entry.clone(), client).await
    }

    /// Reads the document again.
    ///
    /// # Errors
    /// As for [`ApiSession::open`].
    ///
    /// # Cancellation
    /// As for [`ApiSession::open`].
    pub(crate) async fn reopen(&self, server: &str) -> Result<Self, String> {
        Self::read(server, self.entry.clone(), self.client.clone()).await
    }

    async fn read(server: &str, entry: ApiEntry, client: ApiClient) -> Result<Self, String> {
        let api = ApiTools::read(server, &entry, &client)
            .await
            .map_err(|error| with_document_key(&error))?;
        for warning in api.warnings() {
            warn!(%server, warning, "server has settings without effect");
        }
        let mut tools = BTreeMap::new();
        for tool in api.tools() {
            tools.entry(tool.name().to_owned()).or_insert_with(|| tool.clone());
        }
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let info = ServerInfo {
            display_name: text(api.title()),
            instructions: text(api.description()),
            protocol_version: format!("OpenAPI {}", api.version()),
        };
        Ok(Self { entry, client, api, tools, info })
    }

    /// Returns a watch for changes of the document since it was read.
    pub(crate) fn watch(&self) -> DocumentWatch {
        self.api.watch()
    }

    fn definitions(&self, config: &ServerConfig) -> Definitions {
        let listed = self.api.tools().iter().map(|tool| (tool.name().to_owned(), tool));
        let mut definitions =
            Definitions::collect(config, listed, LIMITS, |tool| Ok(definition(config, tool)));
        for skipped in self.api.skipped() {
            definitions.reject(&skipped.operation, skipped.reason.clone());
        }
        definitions
    }
}

fn definition(config: &ServerConfig, tool: &ApiTool) -> McpToolDefinition {
    let registration = tool.tool().registration();
    let hints = if config.is_read_only(tool.name()) {
        ToolHints { open_world: true, ..ToolHints::READ_ONLY }
    } else {
        // They follow from the method and from settings of the operator.
        registration.hints
    };
    McpToolDefinition {
        name: tool.name().to_owned(),
        model_name: namespaced(&config.name, tool.name(), DEFAULT_NAME_BYTES),
        title: registration.label.clone(),
        description: registration.description.clone(),
        parameters: registration.parameters.clone(),
        output_schema: None,
        hints,
        timeout_ms: registration.timeout_ms,
    }
}

impl ServerSession for ApiSession {
    fn info(&self) -> &ServerInfo {
        &self.info
    }

    fn list<'a>(&'a self, config: &'a ServerConfig) -> BoxFuture<'a, Result<Definitions, String>> {
        Box::pin(std::future::ready(Ok(self.definitions(config))))
    }

    /// `idle` has no effect: an HTTP API reports no progress. The timeout of the entry limits a call.
    fn call<'a>(
        &'a self,
        tool: &'a McpToolDefinition,
        arguments: &'a Value,
        context: &'a ToolContext,
        _idle: Duration,
    ) -> BoxFuture<'a, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let not_found = || ToolFailure::NotFound { name: tool.name.clone() };
            let tool = self.tools.get(&tool.name).ok_or_else(not_found)?;
            Ok(tool.tool().call(arguments.clone(), context).await?)
        })
    }
}
