//! The A2A protocol 1.0 over JSON-RPC and HTTP+JSON: the agents of the fleet for agents outside of it.
//!
//! A task is one turn of an agent, and a context is a conversation. The turn runs where the agent runs: a client
//! that disconnects does not end it, and any gateway with the same store finds it again.

mod agent_request;
mod binding;
mod body;
mod caller;
mod card;
mod error;
mod followed_task;
mod list;
mod message;
mod notifier;
mod operations;
mod push;
mod push_configs;
mod records;
mod rest;
mod rpc;
mod rpc_id;
mod state;
mod stream;
mod task_index;
mod tasks;
mod view;

use std::{sync::Arc, time::Duration};

use axum::{body::Bytes, response::Response};

pub(crate) use self::notifier::Notifier;
use self::{
    agent_request::AgentRequest, error::A2aError, push::Push, records::Records, tasks::Tasks,
};
use crate::{
    face::{Access, Route, RouteLimits},
    guard::Guard,
    identity::{FaceName, Right},
    open_counts::OpenCounts,
    parts::GatewayParts,
};

/// Largest body of a request, in bytes. A message has at most 768 KiB of images and recordings.
const BODY_BYTES: usize = 2 * 1024 * 1024;
/// Time limit for a response that waits for the end of a task. A turn that is silent ends it earlier.
const TASK_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Time limit for the head of a response that does not wait for the end of a task.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of open responses of one identity that wait for a task or stream it.
const MAX_OPEN: usize = 256;

/// The state of the face.
struct A2a {
    parts: GatewayParts,
    guard: Arc<Guard>,
    records: Records,
    tasks: Tasks,
    /// The targets of push notifications; `None` if they are off.
    push: Option<Arc<Push>>,
    open: OpenCounts,
    /// Open lists of tasks.
    lists: OpenCounts,
}

impl A2a {
    /// Returns the targets of push notifications.
    ///
    /// # Errors
    /// When push notifications are off.
    fn push(&self) -> Result<&Push, A2aError> {
        self.push.as_deref().ok_or_else(A2aError::no_push_notifications)
    }
}

/// Returns the limits of requests with a message.
fn message_limits() -> RouteLimits {
    RouteLimits { body_bytes: BODY_BYTES, response: TASK_TIMEOUT, ..RouteLimits::default() }
}

/// Returns the routes of the face, and the notifier if push notifications are on.
pub(crate) fn routes(parts: &GatewayParts, guard: &Arc<Guard>) -> (Vec<Route>, Option<Notifier>) {
    let push = parts.a2a.push.clone().map(|options| {
        let (push, opened) = Push::new(options.client.clone(), parts.store.clone());
        (Arc::new(push), options, opened)
    });
    let records = Records::new(parts.store.clone());
    let a2a = Arc::new(A2a {
        parts: parts.clone(),
        guard: guard.clone(),
        tasks: Tasks::new(parts.client.clone(), records.clone()),
        records,
        push: push.as_ref().map(|(push, ..)| push.clone()),
        open: OpenCounts::default(),
        lists: OpenCounts::default(),
    });
    let notifier =
        push.map(|(push, options, opened)| Notifier::new(a2a.clone(), push, options, opened));
    let talk = Access::Right(Right::Talk);
    let rest = rest::routes(&a2a);
    let state = a2a.clone();
    let show = async move |request: AgentRequest| -> Response {
        let A2a { parts, guard, .. } = &*state;
        match request.caller(parts) {
            Ok(caller) => card::show(parts, guard, &caller.agent, &request.headers).await,
            Err(refusal) => refusal.into_response(Some(FaceName::A2a)),
        }
    };
    let call = async move |request: AgentRequest, body: Bytes| -> Response {
        match request.caller(&a2a.parts) {
            Ok(caller) => rpc::serve(&a2a, &caller, request.check_version(), &body).await,
            Err(refusal) => refusal.into_response(Some(FaceName::A2a)),
        }
    };
    let mut routes = vec![
        Route::get("/agents/{agent}/.well-known/agent-card.json", talk, show),
        Route::post("/agents/{agent}", talk, call).with_limits(message_limits()),
    ];
    routes.extend(rest);
    (routes, notifier)
}
