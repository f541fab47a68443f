//! The routes of the API, each with the right that it requires.

use std::{sync::Arc, time::Duration};

use axum::{
    http::Method,
    routing::{MethodRouter, delete, get, patch, post},
};

use super::{
    Api, agents, calls, conversations, fleet, letters, schedules, stream, tasks, tool_calls,
};
use crate::{
    face::{Access, Rate, Route, RouteLimits},
    identity::Right,
    tool_calls::MAX_TIMEOUT,
};

/// Time limit of responses that read many pages or letters.
const SLOW_RESPONSE: Duration = Duration::from_secs(60);

/// Time limit of the response to a call: beyond its longest timeout, and the time to load the tools.
const CALL_RESPONSE: Duration = Duration::from_secs(MAX_TIMEOUT.as_secs() + 30);

/// Returns the routes.
pub(super) fn routes(api: &Arc<Api>) -> Vec<Route> {
    let route = |method: Method, path, right, handler: MethodRouter<Arc<Api>>| {
        let handler = handler.with_state(api.clone());
        Route::service(vec![method], path, Access::Right(right), handler)
    };
    let read = |path, right, handler| route(Method::GET, path, right, handler);
    let send = |path, right, handler| route(Method::POST, path, right, handler);
    let (talk, watch) = (Right::Talk, Right::Watch);
    let slow = RouteLimits { response: SLOW_RESPONSE, ..RouteLimits::default() };
    let messages = RouteLimits { rate: Rate::Messages, ..RouteLimits::default() };
    vec![
        read("/api/v1/agents", talk, get(agents::list)),
        read("/api/v1/schedules", talk, get(schedules::list)),
        read("/api/v1/tasks", talk, get(tasks::list)),
        read("/api/v1/conversations", talk, get(conversations::list)),
        send("/api/v1/conversations", talk, post(conversations::create)),
        read("/api/v1/conversations/{id}", talk, get(conversations::read)),
        route(Method::PATCH, "/api/v1/conversations/{id}", talk, patch(conversations::rename)),
        route(Method::DELETE, "/api/v1/conversations/{id}", talk, delete(conversations::remove)),
        read("/api/v1/conversations/{id}/events", talk, get(conversations::events)),
        send("/api/v1/conversations/{id}/messages", talk, post(conversations::send))
            .with_limits(messages),
        send("/api/v1/conversations/{id}/cancel", talk, post(conversations::cancel)),
        send(
            "/api/v1/conversations/{id}/approvals/{approvalId}",
            talk,
            post(conversations::decide),
        ),
        send(
            "/api/v1/conversations/{id}/inputs/{inputId}",
            talk,
            post(conversations::answer_input),
        ),
        send("/api/v1/conversations/{id}/share", talk, post(conversations::share)),
        route(
            Method::DELETE,
            "/api/v1/conversations/{id}/share",
            talk,
            delete(conversations::unshare),
        ),
        read("/api/v1/conversations/{id}/export", talk, get(conversations::export))
            .with_limits(slow),
        read("/api/v1/shared/{shareId}", talk, get(conversations::read_shared)),
        read("/api/v1/calls", watch, get(calls::list)),
        read("/api/v1/calls/{id}", watch, get(calls::read)),
        read("/api/v1/calls/{id}/content", Right::Content, get(calls::content)),
        read("/api/v1/fleet", watch, get(fleet::read)),
        read("/api/v1/tools", watch, get(fleet::list_tools)),
        read("/api/v1/tools/{name}", watch, get(fleet::read_tool)),
        send("/api/v1/tools/{name}/calls", Right::Call, post(tool_calls::call))
            .with_limits(RouteLimits { response: CALL_RESPONSE, ..messages }),
        read("/api/v1/letters", Right::Letters, get(letters::list_queues)),
        read("/api/v1/letters/{queue}", Right::Letters, get(letters::list)).with_limits(slow),
        read("/api/v1/letters/{queue}/{messageId}", Right::Letters, get(letters::read))
            .with_limits(slow),
        send("/api/v1/letters/{queue}/replay", Right::Letters, post(letters::replay))
            .with_limits(slow),
        send("/api/v1/letters/{queue}/purge", Right::Letters, post(letters::purge))
            .with_limits(slow),
        stream_route(api),
    ]
}

/// The topics of a stream decide which rights it requires.
fn stream_route(api: &Arc<Api>) -> Route {
    let handler = get(stream::open).with_state(api.clone());
    Route::service(vec![Method::GET], "/api/v1/stream", Access::SignedIn, handler)
}
