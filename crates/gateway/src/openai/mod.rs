//! The OpenAI-compatible API: agents are its models.
//!
//! A client sends the whole conversation each time; the agent has its own record of it. So only the last
//! message goes to the agent, in the conversation that the earlier messages belong to.

mod approvals;
mod chunk;
mod completions;
mod content;
mod conversation;
mod error;
mod models;
mod open_completions;
mod output;
mod repetition;
mod request;
mod responses;
mod scope;
mod stop;
mod turn;

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, RawQuery},
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use self::{
    approvals::OpenApprovals, conversation::Conversations, open_completions::OpenCompletions,
    repetition::RequestLog, responses::ResponseRecords,
};
use crate::{
    face::{Access, Rate, Route, RouteLimits},
    identity::{Identity, Right},
    parts::GatewayParts,
    turns::Turns,
};

/// Largest body of a request, in bytes. It has all earlier messages with their images.
const BODY_BYTES: usize = 8 * 1024 * 1024;
/// Time limit for a whole turn, whose answer is the response. A turn that is silent ends earlier.
const TURN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Time limit for a response that is read again.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the face.
#[derive(Debug)]
struct OpenAi {
    parts: GatewayParts,
    turns: Turns,
    requests: RequestLog,
    conversations: Conversations,
    responses: ResponseRecords,
    approvals: OpenApprovals,
    open: OpenCompletions,
}

/// Returns the routes of the face.
pub(crate) fn routes(parts: &GatewayParts) -> Vec<Route> {
    let state = Arc::new(OpenAi {
        turns: Turns::new(parts.client.clone()),
        requests: RequestLog::new(parts.store.clone(), parts.instance.clone()),
        conversations: Conversations::new(parts.store.clone()),
        responses: ResponseRecords::new(parts.store.clone()),
        approvals: OpenApprovals::default(),
        open: OpenCompletions::default(),
        parts: parts.clone(),
    });
    let talk = Access::Right(Right::Talk);
    let limits =
        RouteLimits { body_bytes: BODY_BYTES, response: TURN_TIMEOUT, rate: Rate::Messages };
    let openai = state.clone();
    let complete = async move |Extension(identity): Extension<Identity>,
                               headers: HeaderMap,
                               body: Bytes|
                -> Response {
        let completed = completions::complete(&openai, &identity, &headers, &body).await;
        completed.unwrap_or_else(IntoResponse::into_response)
    };
    let openai = state.clone();
    let list = async move |Extension(identity): Extension<Identity>| {
        models::list(&openai.parts, &identity)
    };
    let openai = state.clone();
    let show = async move |Extension(identity): Extension<Identity>,
                           Path(name): Path<String>|
                -> Response {
        models::show(&openai.parts, &identity, &name).unwrap_or_else(IntoResponse::into_response)
    };
    let openai = state.clone();
    let decide = async move |Extension(identity): Extension<Identity>,
                             Path(id): Path<String>,
                             body: Bytes|
                -> Response {
        let decided = openai.approvals.decide(&openai.parts, &identity, &id, &body).await;
        decided.unwrap_or_else(IntoResponse::into_response)
    };
    let mut routes = vec![
        Route::post("/v1/chat/completions", talk, complete).with_limits(limits),
        Route::get("/v1/models", talk, list),
        Route::get("/v1/models/{model}", talk, show),
        Route::post("/v1/approvals/{approval}", talk, decide),
    ];
    routes.extend(response_routes(&state, limits));
    routes
}

/// Returns the routes of responses.
fn response_routes(openai: &Arc<OpenAi>, limits: RouteLimits) -> [Route; 3] {
    let talk = Access::Right(Right::Talk);
    let state = openai.clone();
    let create = async move |Extension(identity): Extension<Identity>,
                             headers: HeaderMap,
                             body: Bytes|
                -> Response {
        let created = responses::create(&state, &identity, &headers, &body).await;
        created.unwrap_or_else(IntoResponse::into_response)
    };
    let state = openai.clone();
    let show = async move |Extension(identity): Extension<Identity>,
                           Path(id): Path<String>,
                           RawQuery(query): RawQuery|
                -> Response {
        let shown = responses::show(&state, &identity, &id, query.as_deref()).await;
        shown.unwrap_or_else(IntoResponse::into_response)
    };
    let state = openai.clone();
    let delete =
        async move |Extension(identity): Extension<Identity>, Path(id): Path<String>| -> Response {
            let deleted = responses::delete(&state, &identity, &id).await;
            deleted.unwrap_or_else(IntoResponse::into_response)
        };
    let reading = RouteLimits { response: READ_TIMEOUT, ..RouteLimits::default() };
    [
        Route::post("/v1/responses", talk, create).with_limits(limits),
        Route::get("/v1/responses/{response}", talk, show).with_limits(reading),
        Route::delete("/v1/responses/{response}", talk, delete),
    ]
}
