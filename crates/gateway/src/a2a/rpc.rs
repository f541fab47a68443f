//! JSON-RPC: requests, their methods, and the form of responses.

use axum::{
    Json,
    http::{HeaderMap, HeaderValue},
    response::{IntoResponse, Response},
};
use rockbot_contracts::AgentName;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    A2a,
    caller::Caller,
    error::A2aError,
    message::NewMessage,
    operations::{self, Failure},
    rpc_id::RpcId,
};
use crate::identity::{FaceName, Identity};

/// Header and parameter with the version of the protocol.
const VERSION: &str = "a2a-version";
/// Maximum number of opening brackets in a request, those in its texts included. An object takes about 600 bytes of
/// memory.
const MAX_BRACKETS: usize = 50_000;

#[derive(Debug, Deserialize)]
struct Request {
    jsonrpc: String,
    id: RpcId,
    method: String,
    #[serde(default)]
    params: Value,
}

/// The parameters of requests about a task.
#[derive(Debug, Deserialize)]
struct TaskParams {
    id: String,
}

/// Returns the version of the protocol that a request names, in its header or its query.
pub(super) fn version(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let header = headers.get(VERSION).and_then(|version: &HeaderValue| version.to_str().ok());
    if let Some(version) = header.filter(|version| !version.is_empty()) {
        return Some(version.to_owned());
    }
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(VERSION));
    named.next().map(|(_, version)| version.into_owned())
}

/// Serves a request to an agent. `version` is that of the protocol that the client uses.
///
/// # Cancellation
/// Dropping the future, or the body of a stream, leaves the task running.
pub(super) async fn serve(
    a2a: &A2a,
    identity: Identity,
    agent: AgentName,
    version: Option<&str>,
    body: &[u8],
) -> Response {
    let request = match Request::parse(body) {
        Ok(request) => request,
        Err((Some(id), error)) => return Json(id.error(&error)).into_response(),
        Err((None, error)) => {
            let error = error.to_json();
            return Json(json!({"jsonrpc": "2.0", "id": null, "error": error})).into_response();
        }
    };
    let id = request.id.clone();
    if !version.is_some_and(is_supported) {
        return Json(id.error(&A2aError::version())).into_response();
    }
    match request.run(a2a, &Caller::new(identity, agent)).await {
        Ok(Reply::Whole(result)) => Json(id.result(&result)).into_response(),
        Ok(Reply::Stream(events)) => events,
        Err(Failure::Error(error)) => Json(id.error(&error)).into_response(),
        Err(Failure::Refused(refusal)) => refusal.into_response(Some(FaceName::A2a)),
    }
}

/// The result of a request.
enum Reply {
    Whole(Value),
    Stream(Response),
}

impl Request {
    fn parse(body: &[u8]) -> Result<Self, (Option<RpcId>, A2aError)> {
        if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_BRACKETS {
            let error = format!("the request has more than {MAX_BRACKETS} opening brackets");
            return Err((None, A2aError::invalid_request(error)));
        }
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            (None, A2aError::parse_error(format!("the body is no JSON: {error}")))
        })?;
        let id = body.get("id").and_then(|id| RpcId::deserialize(id).ok()).filter(RpcId::is_valid);
        let request = Self::deserialize(body)
            .map_err(|error| (id.clone(), A2aError::invalid_request(error.to_string())))?;
        if request.jsonrpc != "2.0" || id.is_none() {
            let error = "send one request with jsonrpc \"2.0\" and an id of at most 255 bytes";
            return Err((id, A2aError::invalid_request(error)));
        }
        Ok(request)
    }

    async fn run(self, a2a: &A2a, caller: &Caller) -> Result<Reply, Failure> {
        let Self { id, method, params, .. } = self;
        // Fields are named: their order in an array has no meaning.
        if !params.is_object() && !params.is_null() {
            return Err(A2aError::invalid("params must be an object").into());
        }
        match method.as_str() {
            "SendMessage" => {
                let message = NewMessage::parse(params)?;
                let task = operations::send(a2a, caller, message).await?;
                Ok(Reply::Whole(json!({"task": task})))
            }
            "SendStreamingMessage" => {
                let message = NewMessage::parse(params)?;
                let stream = operations::send_streaming(a2a, caller, message, id).await?;
                Ok(Reply::Stream(stream.into_response()))
            }
            "GetTask" => {
                let TaskParams { id } = parsed(params)?;
                Ok(Reply::Whole(operations::get(a2a, caller, &id).await?))
            }
            "CancelTask" => {
                let TaskParams { id } = parsed(params)?;
                Ok(Reply::Whole(operations::cancel(a2a, caller, &id).await?))
            }
            "SubscribeToTask" => {
                let TaskParams { id: task } = parsed(params)?;
                let stream = operations::subscribe(a2a, caller, &task, id).await?;
                Ok(Reply::Stream(stream.into_response()))
            }
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => Err(A2aError::no_push_notifications().into()),
            "GetExtendedAgentCard" => {
                Err(A2aError::unsupported("the agent has one card; see its well-known address")
                    .into())
            }
            _ => Err(A2aError::unknown_method().into()),
        }
    }
}

fn parsed<T: DeserializeOwned>(params: Value) -> Result<T, A2aError> {
    serde_json::from_value(params).map_err(|error| A2aError::invalid(error.to_string()))
}

/// Returns whether a version is 1.0. The number of a patch has no meaning.
fn is_supported(version: &str) -> bool {
    let mut numbers = version.trim().split('.');
    (numbers.next(), numbers.next()) == (Some("1"), Some("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_header_and_query() {
        let none = HeaderMap::new();
        let headers =
            HeaderMap::from_iter([(VERSION.parse().unwrap(), HeaderValue::from_static("1.0"))]);
        assert_eq!(version(&headers, None).as_deref(), Some("1.0"));
        assert_eq!(version(&none, Some("a=b&A2A-Version=1.0")).as_deref(), Some("1.0"));
        assert_eq!(version(&none, None), None);
        for (version, expected) in
            [("1.0", true), ("1.0.1", true), ("0.3", false), ("1", false), ("10.0", false)]
        {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }

    #[test]
    fn malformed_request_is_refused() {
        let long = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"GetTask\",\"id\":\"{}\"}}",
            "x".repeat(256)
        );
        for (body, code) in [
            ("", -32700),
            (&"[".repeat(1000), -32700),
            ("[]", -32600),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"GetTask\"}", -32600),
            ("{\"jsonrpc\":\"1.0\",\"method\":\"GetTask\",\"id\":1}", -32600),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"GetTask\",\"id\":null}", -32600),
            (&long, -32600),
            (&format!("[{}0]", "{},".repeat(MAX_BRACKETS)), -32600),
        ] {
            let (_, error) = Request::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.to_json()["code"], code, "{body}");
        }
    }
}
