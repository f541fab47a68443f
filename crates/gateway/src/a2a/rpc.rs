//! JSON-RPC: requests, their methods, and the form of responses.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    A2a,
    binding::Binding,
    body,
    caller::Caller,
    error::A2aError,
    list::{self, TaskFilter},
    message::NewMessage,
    operations::{self, Failure},
    push_configs::{self, PushConfigId},
    rpc_id::RpcId,
};
use crate::identity::FaceName;

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

/// Serves a request to an agent. `version` is the check of the protocol's version.
///
/// # Cancellation
/// Dropping the future, or the body of a stream, leaves the task running.
pub(super) async fn serve(
    a2a: &A2a,
    caller: &Caller,
    version: Result<(), A2aError>,
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
    if let Err(error) = version {
        return Json(id.error(&error)).into_response();
    }
    match request.run(a2a, caller).await {
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
        let body = body::parse(body).map_err(|error| (None, error))?;
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
                let stream =
                    operations::send_streaming(a2a, caller, message, Binding::JsonRpc(id)).await?;
                Ok(Reply::Stream(stream.into_response()))
            }
            "GetTask" => {
                let TaskParams { id } = body::params(params)?;
                Ok(Reply::Whole(operations::get(a2a, caller, &id).await?))
            }
            "ListTasks" => {
                let filter = TaskFilter::parse(params)?;
                Ok(Reply::Whole(list::list(a2a, caller, &filter).await?))
            }
            "CancelTask" => {
                let TaskParams { id } = body::params(params)?;
                Ok(Reply::Whole(operations::cancel(a2a, caller, &id).await?))
            }
            "SubscribeToTask" => {
                let TaskParams { id: task } = body::params(params)?;
                let binding = Binding::JsonRpc(id);
                Ok(Reply::Stream(operations::subscribe(a2a, caller, &task, binding).await?))
            }
            "CreateTaskPushNotificationConfig" => {
                let task = PushConfigId::parse(&params)?.task_id;
                Ok(Reply::Whole(push_configs::create(a2a, caller, &task, params).await?))
            }
            "GetTaskPushNotificationConfig" => {
                let config = PushConfigId::parse(&params)?;
                Ok(Reply::Whole(push_configs::get(a2a, caller, &config).await?))
            }
            "ListTaskPushNotificationConfigs" => {
                let task = PushConfigId::parse(&params)?.task_id;
                Ok(Reply::Whole(push_configs::list(a2a, caller, &task).await?))
            }
            "DeleteTaskPushNotificationConfig" => {
                let config = PushConfigId::parse(&params)?;
                Ok(Reply::Whole(push_configs::delete(a2a, caller, &config).await?))
            }
            "GetExtendedAgentCard" => Err(A2aError::no_extended_card().into()),
            _ => Err(A2aError::unknown_method().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::body::MAX_BRACKETS, *};

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
