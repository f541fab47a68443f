//! A request to call a tool.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use rockbot_contracts::ToolRegistration;
use rockbot_mcp_server::{DirectCall, DirectCallError};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::view::ToolCallView;
use crate::{
    api::{
        Api,
        body::{JsonBody, idempotency_key},
        problem::{Problem, ProblemBody},
    },
    call_record::CallRecord,
    guard::{AuditAction, audit},
    identity::Identity,
    mcp::client,
    tool_calls::{MAX_TIMEOUT, ToolCalls},
};

/// A call of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewToolCall {
    /// The arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// Timeout in milliseconds, 1 to 600000. Default `mcp_server.call_timeout`.
    timeout_ms: Option<u64>,
    /// The fingerprint of the tool as it was shown; a tool that has changed since is not called.
    fingerprint: Option<String>,
    /// The name of the tool, as a confirmation; needed for a tool that may delete or overwrite data.
    confirm: Option<String>,
}

/// Calls a tool, once for each idempotency key, and waits for its outcome.
#[utoipa::path(post, path = "/api/v1/tools/{name}/calls", tag = "fleet",
    request_body = NewToolCall,
    params(("name" = String, Path, description = "The tool"),
        ("Idempotency-Key" = String, Header, description = "8 to 128 visible ASCII characters")),
    responses((status = 200, body = ToolCallView), (status = "default", body = ProblemBody)))]
pub(crate) async fn call(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewToolCall>,
) -> Result<Json<ToolCallView>, Problem> {
    let calls = api.parts.tool_calls.as_deref().ok_or_else(off)?;
    let key = idempotency_key(&headers).map_err(Problem::not_executed)?;
    let mut record = None;
    let made = make(calls, &identity, &name, key, new, &mut record).await;
    if let Err(problem) = &made {
        match record.take() {
            Some(record) => record.refused(problem.code()),
            None => audit(&identity, AuditAction::ToolCall, &name, problem.code()),
        }
    }
    made.map(Json).map_err(Problem::not_executed)
}

/// Makes the call. Its record is set from the time when it is sent until its outcome.
async fn make(
    calls: &ToolCalls,
    identity: &Identity,
    name: &str,
    key: String,
    new: NewToolCall,
    record: &mut Option<CallRecord>,
) -> Result<ToolCallView, Problem> {
    let NewToolCall { arguments, timeout_ms, fingerprint, confirm } = new;
    let timeout = timeout_ms.map(timeout).transpose()?;
    let unknown = || {
        Problem::not_found(
            "no handler announces this tool, or you may not call it; list the tools with GET /api/v1/tools",
        )
    };
    let client = client(identity).ok_or_else(unknown)?;
    let arguments = Value::Object(arguments).to_string();
    let call = DirectCall { tool: name.to_owned(), arguments, key, timeout };
    let started = Instant::now();
    // A repetition is the same call, even if the tool has changed or ended since.
    if let Some(completed) = calls.fleet().repeated(&client, &call).await {
        return Ok(ToolCallView::new(name, &completed, started.elapsed()));
    }
    let tool = calls.fleet().tool(&client, name).await.ok_or_else(unknown)?;
    check_shown(&tool, fingerprint.as_deref(), confirm.as_deref())?;
    *record = Some(CallRecord::sent(identity, name, &call.id(&client)));
    let completed = calls.fleet().call(&client, call).await.map_err(|error| match error {
        DirectCallError::UnknownTool { .. } => unknown(),
        DirectCallError::Key => Problem::invalid(error.to_string()),
    })?;
    if let Some(record) = record.take() {
        record.ended(&completed.outcome);
    }
    Ok(ToolCallView::new(name, &completed, started.elapsed()))
}

/// Checks that the tool is the one that was shown, and that a call with effects is meant.
fn check_shown(
    tool: &ToolRegistration,
    fingerprint: Option<&str>,
    confirm: Option<&str>,
) -> Result<(), Problem> {
    if fingerprint.is_some_and(|shown| shown != tool.fingerprint()) {
        let detail = "the definition of the tool has changed; read it again and repeat the call";
        return Err(Problem::conflict("changed", detail));
    }
    let may_destroy = tool.hints.destructive && !tool.hints.read_only;
    if may_destroy && confirm != Some(tool.name.as_str()) {
        let detail = format!(
            "the tool may delete or overwrite data; repeat its name, {}, in confirm",
            tool.name
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, "unconfirmed", detail));
    }
    Ok(())
}

fn timeout(millis: u64) -> Result<Duration, Problem> {
    let timeout = Duration::from_millis(millis);
    if timeout.is_zero() || timeout > MAX_TIMEOUT {
        let limit = MAX_TIMEOUT.as_millis();
        return Err(Problem::invalid(format!("timeoutMs must be a number from 1 to {limit}")));
    }
    Ok(timeout)
}

fn off() -> Problem {
    let detail = "calls of tools are off; set gateway.call_tools, and gateway.calls.url in a fleet";
    Problem::new(StatusCode::FORBIDDEN, "not_enabled", detail).not_executed()
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{ToolHints, ToolSource};
    use serde_json::json;

    use super::*;

    fn tool(hints: ToolHints) -> ToolRegistration {
        ToolRegistration {
            name: "bash".to_owned(),
            label: None,
            description: String::new(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints,
            timeout_ms: None,
        }
    }

    #[test]
    fn destructive_tool_needs_its_name() {
        let bash = tool(ToolHints::default());
        for confirm in [None, Some(""), Some("bash ")] {
            assert_eq!(check_shown(&bash, None, confirm).unwrap_err().code(), "unconfirmed");
        }
        assert!(check_shown(&bash, None, Some("bash")).is_ok());
        assert!(check_shown(&tool(ToolHints::READ_ONLY), None, None).is_ok());
    }

    #[test]
    fn changed_tool_is_not_called() {
        let bash = tool(ToolHints::READ_ONLY);
        assert!(check_shown(&bash, Some(&bash.fingerprint()), None).is_ok());
        assert_eq!(check_shown(&bash, Some("0"), None).unwrap_err().code(), "changed");
    }

    #[test]
    fn timeout_is_bounded() {
        assert_eq!(timeout(600_000).unwrap(), MAX_TIMEOUT);
        for millis in [0, 600_001, u64::MAX] {
            assert_eq!(timeout(millis).unwrap_err().code(), "invalid_request");
        }
    }
}
