//! HTTP+JSON: the paths of the operations, and the form of responses.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::Path,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    A2a, OPERATION_TIMEOUT,
    agent_request::AgentRequest,
    binding::Binding,
    body,
    caller::Caller,
    error::A2aError,
    list::{self, TaskFilter},
    message::NewMessage,
    message_limits,
    operations::{self, Failure},
    push_configs::{self, PushConfigId},
};
use crate::{
    face::{Access, Route, RouteLimits},
    guard::{Refusal, is_json},
    identity::{FaceName, Right},
};

/// Media type of responses.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/a2a+json");

const TALK: Access = Access::Right(Right::Talk);

/// The last parameter of the paths of a task. It ends in a colon and a verb for all operations but one.
#[derive(Debug, Deserialize)]
struct TaskPath {
    task: String,
}

/// The parameters of the paths of a configuration of push notifications.
#[derive(Debug, Deserialize)]
struct ConfigurationPath {
    task: String,
    configuration: String,
}

impl From<ConfigurationPath> for PushConfigId {
    fn from(path: ConfigurationPath) -> Self {
        Self { task_id: path.task, id: path.configuration }
    }
}

/// Returns the routes of the binding.
pub(super) fn routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let mut routes = message_routes(a2a);
    routes.extend(task_routes(a2a));
    routes.extend(push_routes(a2a));
    routes.push(extended_card_route(a2a));
    routes
}

fn message_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let state = a2a.clone();
    let send = async move |request: AgentRequest, body: Bytes| -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        let message = message(&request, &body)?;
        let task = operations::send(&state, &caller, message).await?;
        Ok(A2aJson(json!({"task": task})))
    };
    let state = a2a.clone();
    let stream = async move |request: AgentRequest, body: Bytes| -> Result<Response, RestFailure> {
        let caller = caller(&state, &request)?;
        let message = message(&request, &body)?;
        Ok(operations::send_streaming(&state, &caller, message, Binding::HttpJson).await?)
    };
    vec![
        Route::post("/agents/{agent}/message:send", TALK, send).with_limits(message_limits()),
        Route::post("/agents/{agent}/message:stream", TALK, stream).with_limits(message_limits()),
    ]
}

fn task_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let state = a2a.clone();
    let list = async move |request: AgentRequest| -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        let filter = TaskFilter::parse(request.params())?;
        Ok(A2aJson(list::list(&state, &caller, &filter).await?))
    };
    let state = a2a.clone();
    let get = async move |request: AgentRequest,
                          Path(TaskPath { task }): Path<TaskPath>|
                -> Result<Response, RestFailure> {
        match task.rsplit_once(':') {
            None => {
                let caller = caller(&state, &request)?;
                let task = operations::get(&state, &caller, &task).await?;
                Ok(A2aJson(task).into_response())
            }
            Some((task, "subscribe")) => subscribe(&state, &request, task).await,
            Some(_) => Err(Refusal::Path.into()),
        }
    };
    let state = a2a.clone();
    let post = async move |request: AgentRequest,
                           Path(TaskPath { task }): Path<TaskPath>|
                -> Result<Response, RestFailure> {
        match task.rsplit_once(':') {
            Some((task, "cancel")) => {
                let caller = caller(&state, &request)?;
                let task = operations::cancel(&state, &caller, task).await?;
                Ok(A2aJson(task).into_response())
            }
            Some((task, "subscribe")) => subscribe(&state, &request, task).await,
            _ => Err(Refusal::Path.into()),
        }
    };
    let limits = RouteLimits { response: OPERATION_TIMEOUT, ..RouteLimits::default() };
    vec![
        Route::get("/agents/{agent}/tasks", TALK, list).with_limits(limits),
        // axum has no parameter before the colon of a verb.
        Route::get("/agents/{agent}/tasks/{task}", TALK, get).with_limits(limits),
        Route::post("/agents/{agent}/tasks/{task}", TALK, post).with_limits(limits),
    ]
}

/// Returns the routes of configurations of push notifications.
fn push_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let state = a2a.clone();
    let create = async move |request: AgentRequest,
                             Path(TaskPath { task }): Path<TaskPath>,
                             body: Bytes|
                -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        let config = json_body(&request, &body)?;
        Ok(A2aJson(push_configs::create(&state, &caller, &task, config).await?))
    };
    let state = a2a.clone();
    let list = async move |request: AgentRequest,
                           Path(TaskPath { task }): Path<TaskPath>|
                -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        Ok(A2aJson(push_configs::list(&state, &caller, &task).await?))
    };
    let state = a2a.clone();
    let get = async move |request: AgentRequest,
                          Path(path): Path<ConfigurationPath>|
                -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        Ok(A2aJson(push_configs::get(&state, &caller, &path.into()).await?))
    };
    let state = a2a.clone();
    let delete = async move |request: AgentRequest,
                             Path(path): Path<ConfigurationPath>|
                -> Result<A2aJson, RestFailure> {
        let caller = caller(&state, &request)?;
        Ok(A2aJson(push_configs::delete(&state, &caller, &path.into()).await?))
    };
    let limits = RouteLimits { response: OPERATION_TIMEOUT, ..RouteLimits::default() };
    let configurations = "/agents/{agent}/tasks/{task}/pushNotificationConfigs";
    let configuration = "/agents/{agent}/tasks/{task}/pushNotificationConfigs/{configuration}";
    vec![
        Route::get(configurations, TALK, list).with_limits(limits),
        Route::post(configurations, TALK, create).with_limits(limits),
        Route::get(configuration, TALK, get).with_limits(limits),
        Route::delete(configuration, TALK, delete).with_limits(limits),
    ]
}

/// Returns the route of the extended card, which no agent has, so that clients read why.
fn extended_card_route(a2a: &Arc<A2a>) -> Route {
    let a2a = a2a.clone();
    let refuse = async move |request: AgentRequest| -> Result<A2aJson, RestFailure> {
        caller(&a2a, &request)?;
        Err(A2aError::no_extended_card().into())
    };
    Route::get("/agents/{agent}/extendedAgentCard", TALK, refuse)
}

/// Returns the caller of a request with a supported version of the protocol.
fn caller(a2a: &A2a, request: &AgentRequest) -> Result<Caller, Failure> {
    let caller = request.caller(&a2a.parts)?;
    request.check_version()?;
    Ok(caller)
}

/// Reads the message of a body.
fn message(request: &AgentRequest, bytes: &[u8]) -> Result<NewMessage, A2aError> {
    NewMessage::parse(json_body(request, bytes)?)
}

/// Parses a body.
fn json_body(request: &AgentRequest, bytes: &[u8]) -> Result<Value, A2aError> {
    if request.headers.contains_key(header::CONTENT_TYPE) && !is_json(&request.headers) {
        return Err(A2aError::media_type());
    }
    body::parse(bytes)
}

async fn subscribe(a2a: &A2a, request: &AgentRequest, task: &str) -> Result<Response, RestFailure> {
    let caller = caller(a2a, request)?;
    let stream = operations::subscribe(a2a, &caller, task, Binding::HttpJson).await?;
    Ok(stream.into_response())
}

/// A body of the protocol's media type.
struct A2aJson(Value);

impl IntoResponse for A2aJson {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, MEDIA_TYPE)], Json(self.0)).into_response()
    }
}

/// A failed request, in the form of the binding.
struct RestFailure(Failure);

impl<E: Into<Failure>> From<E> for RestFailure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for RestFailure {
    fn into_response(self) -> Response {
        match self.0 {
            Failure::Refused(refusal) => refusal.into_response(Some(FaceName::A2a)),
            Failure::Error(error) => {
                let mut response = (error.status(), A2aJson(error.to_rest_json())).into_response();
                if let Some(seconds) = error.retry_after() {
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
                response
            }
        }
    }
}
