//! HTTP+JSON: the paths of the operations, and the form of responses.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, RawQuery},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    A2a, OPERATION_TIMEOUT, body,
    caller::Caller,
    envelope::Envelope,
    error::A2aError,
    list::{self, TaskFilter},
    message::NewMessage,
    message_limits,
    operations::{self, Failure},
    unknown_agent,
};
use crate::{
    face::{Access, Route, RouteLimits},
    guard::{Refusal, is_json},
    identity::{FaceName, Identity, Right},
};

/// Media type of responses.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/a2a+json");

const TALK: Access = Access::Right(Right::Talk);

/// A request to an agent, without its path.
struct RestRequest {
    identity: Identity,
    headers: HeaderMap,
    query: Option<String>,
}

/// Returns the routes of the binding.
pub(super) fn routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let mut routes = message_routes(a2a);
    routes.extend(task_routes(a2a));
    routes.extend(unsupported_routes(a2a));
    routes
}

fn message_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let state = a2a.clone();
    let send = async move |Extension(identity): Extension<Identity>,
                           Path(agent): Path<String>,
                           RawQuery(query): RawQuery,
                           headers: HeaderMap,
                           body: Bytes|
                -> Response {
        let request = RestRequest { identity, headers, query };
        respond(async {
            let caller = request.caller(&state, &agent)?;
            let message = request.message(&body)?;
            Ok(json!({"task": operations::send(&state, &caller, message).await?}))
        })
        .await
    };
    let state = a2a.clone();
    let stream = async move |Extension(identity): Extension<Identity>,
                             Path(agent): Path<String>,
                             RawQuery(query): RawQuery,
                             headers: HeaderMap,
                             body: Bytes|
                -> Response {
        let request = RestRequest { identity, headers, query };
        stream(async {
            let caller = request.caller(&state, &agent)?;
            let message = request.message(&body)?;
            operations::send_streaming(&state, &caller, message, Envelope::Plain)
                .await
                .map_err(Into::into)
        })
        .await
    };
    vec![
        Route::post("/agents/{agent}/message:send", TALK, send).with_limits(message_limits()),
        Route::post("/agents/{agent}/message:stream", TALK, stream).with_limits(message_limits()),
    ]
}

fn task_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let state = a2a.clone();
    let list = async move |Extension(identity): Extension<Identity>,
                           Path(agent): Path<String>,
                           RawQuery(query): RawQuery,
                           headers: HeaderMap|
                -> Response {
        let request = RestRequest { identity, headers, query };
        respond(async {
            let caller = request.caller(&state, &agent)?;
            let filter = TaskFilter::parse(request.params())?;
            Ok(list::list(&state, &caller, &filter).await?)
        })
        .await
    };
    let state = a2a.clone();
    let get = async move |Extension(identity): Extension<Identity>,
                          Path((agent, task)): Path<(String, String)>,
                          RawQuery(query): RawQuery,
                          headers: HeaderMap|
                -> Response {
        let request = RestRequest { identity, headers, query };
        match task.rsplit_once(':') {
            None => {
                respond(async {
                    let caller = request.caller(&state, &agent)?;
                    Ok(operations::get(&state, &caller, &task).await?)
                })
                .await
            }
            Some((task, "subscribe")) => request.subscribe(&state, &agent, task).await,
            Some(_) => unknown_path(),
        }
    };
    let state = a2a.clone();
    let post = async move |Extension(identity): Extension<Identity>,
                           Path((agent, task)): Path<(String, String)>,
                           RawQuery(query): RawQuery,
                           headers: HeaderMap|
                -> Response {
        let request = RestRequest { identity, headers, query };
        match task.rsplit_once(':') {
            Some((task, "cancel")) => {
                respond(async {
                    let caller = request.caller(&state, &agent)?;
                    Ok(operations::cancel(&state, &caller, task).await?)
                })
                .await
            }
            Some((task, "subscribe")) => request.subscribe(&state, &agent, task).await,
            _ => unknown_path(),
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

/// Returns the routes of operations that no agent has, so that clients read why.
fn unsupported_routes(a2a: &Arc<A2a>) -> Vec<Route> {
    let refuse = |error: fn() -> A2aError| {
        let a2a = a2a.clone();
        async move |Extension(identity): Extension<Identity>,
                    Path(path): Path<Vec<(String, String)>>,
                    RawQuery(query): RawQuery,
                    headers: HeaderMap|
                    -> Response {
            let request = RestRequest { identity, headers, query };
            let agent = path.into_iter().find(|(name, _)| name == "agent");
            let agent = agent.map(|(_, agent)| agent).unwrap_or_default();
            respond(async {
                request.caller(&a2a, &agent)?;
                Err(error().into())
            })
            .await
        }
    };
    let push = || refuse(A2aError::no_push_notifications);
    let configurations = "/agents/{agent}/tasks/{task}/pushNotificationConfigs";
    let configuration = "/agents/{agent}/tasks/{task}/pushNotificationConfigs/{configuration}";
    let card = refuse(A2aError::no_extended_card);
    vec![
        Route::get("/agents/{agent}/extendedAgentCard", TALK, card),
        Route::get(configurations, TALK, push()),
        Route::post(configurations, TALK, push()),
        Route::get(configuration, TALK, push()),
        Route::delete(configuration, TALK, push()),
    ]
}

/// Why a request has another response than its result.
enum RestFailure {
    Failed(Failure),
    UnknownAgent,
}

impl From<Failure> for RestFailure {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<A2aError> for RestFailure {
    fn from(error: A2aError) -> Self {
        Self::Failed(error.into())
    }
}

impl RestRequest {
    /// Returns the caller of the agent, if it may use it.
    fn caller(&self, a2a: &A2a, agent: &str) -> Result<Caller, RestFailure> {
        let agent = a2a.parts.agent_for(&self.identity, agent).ok_or(RestFailure::UnknownAgent)?;
        body::check_version(&self.headers, self.query.as_deref())?;
        Ok(Caller::new(self.identity.clone(), agent.clone()))
    }

    /// Reads the message of a body.
    fn message(&self, bytes: &[u8]) -> Result<NewMessage, A2aError> {
        if self.headers.contains_key(header::CONTENT_TYPE) && !is_json(&self.headers) {
            return Err(A2aError::media_type());
        }
        NewMessage::parse(body::parse(bytes)?)
    }

    /// Returns the parameters of the query.
    fn params(&self) -> Value {
        let query = self.query.as_deref().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let pairs = pairs.map(|(name, value)| (name.into_owned(), value.into_owned().into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    }

    async fn subscribe(&self, a2a: &A2a, agent: &str, task: &str) -> Response {
        stream(async {
            let caller = self.caller(a2a, agent)?;
            operations::subscribe(a2a, &caller, task, Envelope::Plain).await.map_err(Into::into)
        })
        .await
    }
}

impl IntoResponse for RestFailure {
    fn into_response(self) -> Response {
        match self {
            Self::UnknownAgent => unknown_agent(),
            Self::Failed(Failure::Refused(refusal)) => refusal.into_response(Some(FaceName::A2a)),
            Self::Failed(Failure::Error(error)) => {
                let mut response = (error.status(), as_a2a(error.to_rest_json())).into_response();
                if let Some(seconds) = error.retry_after() {
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
                response
            }
        }
    }
}

async fn respond(operation: impl Future<Output = Result<Value, RestFailure>>) -> Response {
    match operation.await {
        Ok(result) => as_a2a(result).into_response(),
        Err(failure) => failure.into_response(),
    }
}

async fn stream<T: IntoResponse>(
    operation: impl Future<Output = Result<T, RestFailure>>,
) -> Response {
    match operation.await {
        Ok(stream) => stream.into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// Returns a body of the protocol's media type.
fn as_a2a(body: Value) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], Json(body)).into_response()
}

/// Answers a path that the protocol does not have.
fn unknown_path() -> Response {
    Refusal::Path.into_response(Some(FaceName::A2a))
}
