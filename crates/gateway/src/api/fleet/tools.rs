//! The tools of the fleet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
};
use rockbot_contracts::ToolRegistration;
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::view::pool_name;
use crate::api::{
    Api,
    problem::{Problem, ProblemBody},
    schema::HintsView,
};

/// Time limit for the first announcement of a handler.
const CATALOG_WAIT: Duration = Duration::from_secs(2);

/// The tools that handlers announce, by name.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolPage {
    tools: Vec<ToolView>,
}

/// A tool. Its texts are untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolView {
    /// Its name.
    name: String,
    /// Its source.
    source: String,
    /// Its display name.
    label: String,
    /// Its description for models.
    description: String,
    /// Possible effects of a call.
    hints: HintsView,
    /// Hash of its definition.
    fingerprint: String,
    /// The pool whose handlers receive its calls; absent for the one without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The handlers that run it.
    handlers: Vec<String>,
    /// Its timeout, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

/// A tool with the schema of its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolDetails {
    /// The tool.
    #[serde(flatten)]
    tool: ToolView,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    parameters: Value,
}

/// Lists the tools that handlers announce.
#[utoipa::path(get, path = "/api/v1/tools", tag = "fleet",
    responses((status = 200, body = ToolPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_tools(State(api): State<Arc<Api>>) -> Result<Json<ToolPage>, Problem> {
    let tools = announced(&catalog(&api).await?);
    Ok(Json(ToolPage { tools: tools.into_values().map(|(tool, _)| tool).collect() }))
}

/// Returns one tool with the schema of its arguments.
#[utoipa::path(get, path = "/api/v1/tools/{name}", tag = "fleet",
    params(("name" = String, Path, description = "The tool")),
    responses((status = 200, body = ToolDetails), (status = "default", body = ProblemBody)))]
pub(crate) async fn read_tool(
    State(api): State<Arc<Api>>,
    Path(name): Path<String>,
) -> Result<Json<ToolDetails>, Problem> {
    let found = announced(&catalog(&api).await?).remove(&name);
    let (tool, parameters) = found.ok_or_else(|| {
        Problem::not_found("no handler announces this tool; list them with GET /api/v1/tools")
    })?;
    Ok(Json(ToolDetails { tool, parameters }))
}

async fn catalog(api: &Api) -> Result<CatalogSnapshot, Problem> {
    Ok(api.calls()?.view().catalog(CATALOG_WAIT).await)
}

/// Returns the tools by name, as the handlers of the pool that owns the name announce them.
fn announced(catalog: &CatalogSnapshot) -> BTreeMap<String, (ToolView, Value)> {
    let mut tools = BTreeMap::<String, (ToolView, Value)>::new();
    for handler in catalog.handlers() {
        for tool in handler.tools.iter() {
            if catalog.owner(&tool.name) != Some(&handler.pool) {
                continue;
            }
            let entry = tools
                .entry(tool.name.clone())
                .or_insert_with(|| (view(tool, pool_name(&handler.pool)), tool.parameters.clone()));
            entry.0.handlers.push(handler.name());
        }
    }
    tools
}

fn view(tool: &ToolRegistration, pool: Option<String>) -> ToolView {
    ToolView {
        name: tool.name.clone(),
        source: tool.source.to_string(),
        label: tool.display_label().to_owned(),
        description: tool.model_description().to_owned(),
        hints: tool.hints.into(),
        fingerprint: tool.fingerprint(),
        pool,
        handlers: Vec::new(),
        timeout_ms: tool.timeout_ms,
    }
}
