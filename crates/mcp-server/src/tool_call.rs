//! A call of a tool by a client: from its request to its result.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use rmcp::{
    RoleServer,
    model::{CallToolResult, ProgressNotificationParam, ProgressToken, ProtocolVersion},
    service::{Peer, RequestContext},
};
use rockbot_contracts::{Executed, ToolSource};
use rockbot_tools::{
    ToolCall, ToolContext, ToolFailure, ToolScope, ToolUpdate, registry::RegisteredTool,
};
use serde_json::Value;
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, timeout},
};
use tracing::debug;

use crate::{
    call_id::{CallContent, RequestIdentity},
    call_observer::RequestObserver,
    call_result::{self, CallFacts},
    client::McpClient,
    fleet::McpFleet,
    shared_calls::{CallControl, CallOutcome, CallRequest, JoinedCall},
};

/// Metadata key of a request: a key that the client chose for the call.
pub(crate) const CALL_KEY: &str = "rockbot/callId";
/// Metadata key of a request: the timeout of the call, in milliseconds.
pub(crate) const TIMEOUT: &str = "rockbot/timeoutMs";
/// HTTP header with a key that the client chose for the call.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// HTTP header with the session of a client.
const SESSION_ID: &str = "mcp-session-id";

/// Longest key of a call, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// Time that a call with a key runs on after the connection of its client was lost.
const RECONNECT_TIME: Duration = Duration::from_secs(30);
/// Time limit for sending progress to a client.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest progress message, in characters.
const MAX_PROGRESS_CHARS: usize = 1000;

/// A request to call a tool.
pub(crate) struct CallAttempt {
    identity: RequestIdentity,
    timeout: Option<Duration>,
    progress: Option<ProgressToken>,
    /// Set if the client's revision of the protocol has links to resources in results.
    has_links: bool,
    /// Set if the end of the request means that its connection was lost, not that the client cancelled it.
    may_reconnect: bool,
    observer: Option<RequestObserver>,
}

/// Error for the metadata of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCall {
    #[error("the key of the call must have 1 to {MAX_KEY_BYTES} bytes without control characters")]
    Key,
    #[error("{TIMEOUT} must be a positive number of milliseconds")]
    Timeout,
}

impl CallAttempt {
    /// Reads the metadata of a request. `session` is that of a connection with a single client.
    ///
    /// # Errors
    /// See [`InvalidCall`].
    pub(crate) fn new(
        context: &RequestContext<RoleServer>,
        session: Option<&str>,
    ) -> Result<Self, InvalidCall> {
        let parts = context.extensions.get::<Parts>();
        let headers = parts.map(|parts| &parts.headers);
        let header = |name: &str| headers.and_then(|headers| headers.get(name));
        let key = match (context.meta.0.0.get(CALL_KEY), header(IDEMPOTENCY_KEY)) {
            (Some(key), _) => Some(key.as_str().ok_or(InvalidCall::Key)?),
            (None, Some(key)) => Some(key.to_str().map_err(|_| InvalidCall::Key)?),
            (None, None) => None,
        };
        let session = header(SESSION_ID).and_then(|id| id.to_str().ok()).or(session);
        let identity = match (key, session) {
            (Some(key), _) if is_key(key) => RequestIdentity::Key(key.to_owned()),
            (Some(_), _) => return Err(InvalidCall::Key),
            (None, Some(session)) => RequestIdentity::InSession {
                session: session.to_owned(),
                request: context.id.clone(),
            },
            (None, None) => RequestIdentity::Unknown,
        };
        let timeout = match context.meta.0.0.get(TIMEOUT).map(Value::as_u64) {
            Some(Some(millis @ 1..)) => Some(Duration::from_millis(millis)),
            Some(_) => return Err(InvalidCall::Timeout),
            None => None,
        };
        let has_links = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_06_18.as_str());
        let is_key = matches!(identity, RequestIdentity::Key(_));
        Ok(Self {
            identity,
            timeout,
            progress: context.meta.get_progress_token(),
            has_links,
            may_reconnect: is_key && headers.is_some() && session.is_none(),
            observer: parts.and_then(|parts| parts.extensions.get()).cloned(),
        })
    }

    /// Calls `tool`, or joins the same call, and returns its result. Progress is sent to the client meanwhile.
    ///
    /// # Cancellation
    /// The call is cancelled with the request. If the request has a key and its connection was lost, the call runs
    /// on for 30 s, so that the client can repeat the request.
    pub(crate) async fn run(
        self,
        fleet: &McpFleet,
        client: &McpClient,
        tool: &RegisteredTool,
        arguments: String,
        request: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let registration = tool.registration();
        let content = CallContent::new(&registration.name, &arguments);
        let id = self.identity.call_id(client.name(), &content);
        let mut facts =
            CallFacts { id: id.clone(), source: registration.source.clone(), output: None };
        let call = CallRequest {
            id: id.clone(),
            client: client.name().clone(),
            content,
            may_repeat: self.identity.is_known(),
            grace: if self.may_reconnect { RECONNECT_TIME } else { Duration::ZERO },
        };
        let has_effects = !registration.hints.read_only;
        let has_client_key = has_effects && matches!(self.identity, RequestIdentity::Key(_));
        let existing = fleet.calls.join_existing(&call);
        let begin = |observer: &RequestObserver| {
            observer.begin(&registration.name, &id, existing.is_some())
        };
        let observed = match self.observer.as_ref().map(begin).transpose() {
            Ok(observed) => observed,
            Err(failure) => {
                return call_result::failed(&local_failure(failure, has_client_key), &facts);
            }
        };
        let is_agent = matches!(registration.source, ToolSource::Agent(_));
        let time = fleet.section.timeout(self.timeout, is_agent);
        let mut context = fleet.context(client, &registration.name);
        context.tool_call_id = id;
        context.has_client_key = has_client_key;
        context.deadline = Instant::now() + time;
        if is_agent {
            // The filter of tools does not apply to agents.
            context.scope = ToolScope::everything();
        }
        let tool_name = context.tool_name.clone();
        let start = |control| execute(fleet, context, arguments, control);
        let joined = existing.unwrap_or_else(|| fleet.calls.join(call, start));
        let outcome = match joined {
            Ok(mut joined) => self.wait(&mut joined, request).await,
            Err(failure) => Arc::new(Err(local_failure(failure, has_client_key))),
        };
        if let Some(observed) = observed {
            observed.end(&outcome);
        }
        match &*outcome {
            Ok(result) => {
                let output = fleet.outputs.record(client.name(), &tool_name, result);
                facts.output = output.filter(|_| self.has_links);
                call_result::completed(result, &facts)
            }
            Err(failure) => call_result::failed(failure, &facts),
        }
    }

    async fn wait(
        &self,
        joined: &mut JoinedCall,
        request: &RequestContext<RoleServer>,
    ) -> Arc<CallOutcome> {
        let mut progress =
            Progress { peer: &request.peer, token: self.progress.clone(), sent: 0.0 };
        loop {
            tokio::select! {
                biased;
                () = request.ct.cancelled() => {
                    if !self.may_reconnect {
                        joined.cancel();
                    }
                    // The client does not read it.
                    return Arc::new(Err(ToolFailure::Cancelled { executed: Executed::Unknown }));
                }
                line = next_line(&mut joined.progress), if progress.token.is_some() => {
                    progress.send(&line).await;
                }
                outcome = outcome(&mut joined.outcome) => return outcome,
            }
        }
    }
}

pub(crate) fn is_key(key: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control)
}

/// Runs the call. Its updates are published until it ends.
pub(crate) fn execute(
    fleet: &McpFleet,
    mut context: ToolContext,
    arguments: String,
    control: CallControl,
) -> impl Future<Output = CallOutcome> + Send + use<> {
    let CallControl { cancellation, progress } = control;
    context.cancellation = cancellation;
    context.updates = Some(Arc::new(move |update| {
        if let ToolUpdate::Progress(line) = update {
            let line: String = line.chars().take(MAX_PROGRESS_CHARS).collect();
            // An error means that no request waits for progress.
            let _ = progress.send(line.into());
        }
    }));
    let executor = fleet.executor.clone();
    let has_client_key = context.has_client_key;
    let call = ToolCall { context, arguments: arguments.into() };
    async move {
        let outcome = Box::pin(executor.execute(call)).await;
        outcome.map_err(|failure| local_failure(failure, has_client_key))
    }
}

/// Returns the failure of a call that this process did not make. If a client chose the key of the call, another
/// process may have made it, and only a handler can deny that.
pub(crate) fn local_failure(failure: ToolFailure, has_client_key: bool) -> ToolFailure {
    match failure {
        ToolFailure::Overloaded { .. }
        | ToolFailure::Unavailable { .. }
        | ToolFailure::TimedOut { .. }
        | ToolFailure::Cancelled { .. }
            if has_client_key =>
        {
            failure.into_possibly_executed()
        }
        failure => failure,
    }
}

/// Waits for the outcome of a call.
pub(crate) async fn outcome(
    outcome: &mut watch::Receiver<Option<Arc<CallOutcome>>>,
) -> Arc<CallOutcome> {
    let known = outcome.wait_for(Option::is_some).await;
    known.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| {
        let message = "the call ended unexpectedly; read the log of the server".to_owned();
        Arc::new(Err(ToolFailure::OutcomeUnknown { message }))
    })
}

/// Waits for the next line of progress. Waits forever when there are no more.
async fn next_line(lines: &mut broadcast::Receiver<Arc<str>>) -> Arc<str> {
    loop {
        match lines.recv().await {
            Ok(line) => return line,
            // The newest lines are still there.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Sends progress to a client that asked for it.
struct Progress<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Number of notifications so far.
    sent: f64,
}

impl Progress<'_> {
    async fn send(&mut self, line: &str) {
        let Some(token) = self.token.clone() else { return };
        self.sent += 1.0;
        let progress = ProgressNotificationParam::new(token, self.sent).with_message(line);
        let sent = timeout(PROGRESS_TIMEOUT, self.peer.notify_progress(progress)).await;
        if !matches!(sent, Ok(Ok(()))) {
            debug!("progress not sent; the client does not read");
            self.token = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded() {
        for key in ["a", "0190-…", &"x".repeat(255)] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "a\n", &"x".repeat(256)] {
            assert!(!is_key(key), "{key}");
        }
    }

    #[test]
    fn process_does_not_deny_a_call_of_a_client_key() {
        let overloaded = || ToolFailure::Overloaded { message: "full".to_owned() };
        let late = || ToolFailure::TimedOut {
            after: Duration::from_secs(1),
            executed: Executed::No,
            repeatable: false,
        };
        let failures: [&dyn Fn() -> ToolFailure; 2] = [&overloaded, &late];
        for failure in failures {
            assert_eq!(local_failure(failure(), false).executed(), Executed::No);
            assert_eq!(local_failure(failure(), true).executed(), Executed::Unknown);
        }
        // The same arguments were refused before, too.
        let invalid = ToolFailure::invalid("not an object");
        assert_eq!(local_failure(invalid, true).executed(), Executed::No);
    }

    #[tokio::test]
    async fn newest_lines_survive_a_slow_reader() {
        let lines = broadcast::Sender::<Arc<str>>::new(2);
        let mut reader = lines.subscribe();
        for line in ["1", "2", "3"] {
            lines.send(line.into()).unwrap();
        }
        assert_eq!(&*next_line(&mut reader).await, "2");
        assert_eq!(&*next_line(&mut reader).await, "3");
    }

    #[tokio::test]
    async fn lost_outcome_is_unknown() {
        let (sender, mut receiver) = watch::channel(None);
        drop(sender);
        let lost = outcome(&mut receiver).await;
        assert!(matches!(&*lost, Err(ToolFailure::OutcomeUnknown { .. })));
    }
}
