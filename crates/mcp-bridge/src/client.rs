//! The client side of a session, with as few capabilities as possible.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams,
        ElicitResult, ElicitationAction, ErrorCode, Implementation, ProgressNotificationParam,
        ProgressToken, ProtocolVersion, ResourceUpdatedNotificationParam,
    },
    service::{NotificationContext, RequestContext},
};
use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::ToolContext;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    elicitation::{self, Elicitor, raw_form},
    followed_resources::FollowedResources,
};

/// The longest progress message that is forwarded, in characters.
const MAX_PROGRESS_CHARS: usize = 500;
/// The largest number of requests for input that are open in a call. Further ones are declined.
const MAX_OPEN_REQUESTS: usize = 4;
/// The largest number of requests for input of a call. Further ones are declined.
const MAX_REQUESTS: u32 = 32;
/// Time that a server may go on with a call whose caller stopped waiting. Its requests for input are not shown
/// in other conversations meanwhile.
const ABANDONED_TIME: Duration = Duration::from_secs(300);

/// The handler of requests and notifications from the server.
///
/// Input is requested from the user of the call that runs. There is no model to sample from and no folder
/// to expose: rmcp's defaults refuse the first and return an empty list for the second.
#[derive(Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    resources: Arc<FollowedResources>,
    capabilities: ClientCapabilities,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Calls>,
    next_call: AtomicU64,
    tools_changed: Notify,
}

/// The calls that the server has.
#[derive(Default)]
struct Calls {
    running: BTreeMap<u64, RunningCall>,
    abandoned: Option<AbandonedCalls>,
}

impl Calls {
    /// Returns whether all calls are of one conversation, also those that the server may go on with.
    fn are_of_one_conversation(&self) -> bool {
        let now = Instant::now();
        let abandoned = self.abandoned.as_ref().filter(|calls| calls.until > now);
        let mut running = self.running.values();
        let Some(first) = running.next() else { return true };
        let (agent, session) = first.conversation();
        running.all(|call| call.conversation() == (agent, session))
            && abandoned.is_none_or(|calls| {
                calls.conversation.as_ref().is_some_and(|(a, s)| (a, s) == (agent, session))
            })
    }

    /// Removes a call that the server may go on with.
    fn abandon(&mut self, id: u64) {
        let Some(call) = self.running.remove(&id) else { return };
        let now = Instant::now();
        let conversation = (call.context.agent, call.context.session_id);
        let is_other = |calls: &AbandonedCalls| {
            calls.until > now && calls.conversation.as_ref() != Some(&conversation)
        };
        let several = self.abandoned.as_ref().is_some_and(is_other);
        let conversation = (!several).then_some(conversation);
        self.abandoned = Some(AbandonedCalls { conversation, until: now + ABANDONED_TIME });
    }
}

/// Calls without a response, whose callers stopped waiting.
struct AbandonedCalls {
    /// Their conversation; `None` if there are several.
    conversation: Option<(AgentName, SessionId)>,
    until: Instant,
}

/// A call that the server has.
struct RunningCall {
    /// The token of its progress, once it is sent.
    token: Option<ProgressToken>,
    context: ToolContext,
    elicitor: Option<Elicitor>,
    /// Number of open requests for input. Marked as changed by everything that the server sends.
    open_requests: watch::Sender<usize>,
    /// Number of all requests for input.
    requests: u32,
    ended: CancellationToken,
}

impl RunningCall {
    fn conversation(&self) -> (&AgentName, &SessionId) {
        (&self.context.agent, &self.context.session_id)
    }
}

impl Client {
    /// Creates a client with these capabilities.
    pub(crate) fn new(capabilities: ClientCapabilities) -> Self {
        Self { shared: Arc::default(), resources: Arc::default(), capabilities }
    }

    /// Forwards progress and requests for input to the caller of a call, which is sent next, until the guard
    /// is dropped. Without [`CallGuard::responded`], the server may go on with the call.
    pub(crate) fn follow(&self, context: &ToolContext, elicitor: Option<Elicitor>) -> CallGuard {
        let (open_requests, activity) = watch::channel(0);
        let ended = CancellationToken::new();
        let call = RunningCall {
            token: None,
            context: context.clone(),
            elicitor,
            open_requests,
            requests: 0,
            ended: ended.clone(),
        };
        let id = self.shared.next_call.fetch_add(1, Ordering::Relaxed);
        self.calls().running.insert(id, call);
        CallGuard { client: self.clone(), id, activity, ended }
    }

    /// Completes when the server has announced changed tools or prompts; coalesces announcements.
    pub(crate) async fn tools_changed(&self) {
        self.shared.tools_changed.notified().await;
    }

    /// Records that the server's tools changed.
    pub(crate) fn notify_tools_changed(&self) {
        self.shared.tools_changed.notify_one();
    }

    /// Returns the resources that callers have read.
    pub(crate) fn resources(&self) -> &FollowedResources {
        &self.resources
    }

    /// Returns the elicitor of the call that the server asks in. A server does not say which call that is, so
    /// it returns `None` while the server has calls of several conversations: a user must not see the requests
    /// of another.
    fn open_request(&self) -> Option<(Elicitor, RequestGuard)> {
        let mut calls = self.calls();
        if !calls.are_of_one_conversation() {
            debug!("request for input declined: the server has calls of several conversations");
            return None;
        }
        let can_ask = |call: &&mut RunningCall| {
            call.elicitor.is_some()
                && *call.open_requests.borrow() < MAX_OPEN_REQUESTS
                && call.requests < MAX_REQUESTS
        };
        let call = calls.running.values_mut().find(can_ask)?;
        call.requests += 1;
        call.open_requests.send_modify(|open| *open += 1);
        let guard =
            RequestGuard { open_requests: call.open_requests.clone(), ended: call.ended.clone() };
        Some((call.elicitor.clone()?, guard))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.shared.calls.lock()
    }
}

/// Counts an open request for input until it is dropped.
struct RequestGuard {
    open_requests: watch::Sender<usize>,
    /// Cancelled when the call has ended.
    ended: CancellationToken,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.open_requests.send_modify(|open| *open = open.saturating_sub(1));
    }
}

/// Stops following a call when dropped, and withdraws its requests for input.
pub(crate) struct CallGuard {
    client: Client,
    id: u64,
    activity: watch::Receiver<usize>,
    ended: CancellationToken,
}

impl CallGuard {
    /// Sets the token of the progress.
    pub(crate) fn set_token(&self, token: ProgressToken) {
        if let Some(call) = self.client.calls().running.get_mut(&self.id) {
            call.token = Some(token);
        }
    }

    /// Records that the server has responded: it sends no further requests for input in this call.
    pub(crate) fn responded(&self) {
        self.ended.cancel();
        self.client.calls().running.remove(&self.id);
    }

    /// Completes when the server has sent nothing about the call for `idle`. The time that a user takes to
    /// respond does not count.
    pub(crate) async fn idle(&mut self, idle: Duration) {
        loop {
            let is_asking = *self.activity.borrow_and_update() > 0;
            let changed = self.activity.changed();
            let changed = if is_asking { Ok(changed.await) } else { timeout(idle, changed).await };
            match changed {
                Ok(Ok(())) => {}
                // The call is no longer followed.
                Ok(Err(_)) => std::future::pending().await,
                Err(_) => return,
            }
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.ended.cancel();
        self.client.calls().abandon(self.id);
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("rockbot-mcp-bridge", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.capabilities.clone(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some((elicitor, guard)) = self.open_request() else {
            return Ok(elicitation::decline());
        };
        let withdrawn = async {
            tokio::select! {
                () = guard.ended.cancelled() => {}
                () = context.ct.cancelled() => {}
            }
        };
        Ok(tokio::select! {
            result = elicitor.ask(&params) => result,
            () = withdrawn => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    /// Declines a request for input whose form cannot be read, as any that cannot be shown. An error would say
    /// that this client knows no such requests.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != raw_form::METHOD {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        if let Some((elicitor, _guard)) = self.open_request() {
            elicitor.report_unreadable();
        }
        let declined = serde_json::to_value(elicitation::decline());
        declined
            .map(CustomResult::new)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let context = {
            let calls = self.calls();
            let has_token =
                |call: &&RunningCall| call.token.as_ref() == Some(&params.progress_token);
            calls.running.values().find(has_token).map(|call| {
                call.open_requests.send_modify(|_| {});
                call.context.clone()
            })
        };
        if let Some(context) = context {
            context.progress(format_progress(&params));
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.notify_tools_changed();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.resources.report(params.uri);
    }

    /// Prompts are listed together with the tools.
    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.notify_tools_changed();
    }
}

/// Formats progress as `3 of 10: message`.
fn format_progress(params: &ProgressNotificationParam) -> String {
    let mut line = params.progress.to_string();
    if let Some(total) = params.total {
        line.push_str(&format!(" of {total}"));
    }
    if let Some(message) = &params.message {
        line.push_str(": ");
        line.extend(message.chars().take(MAX_PROGRESS_CHARS));
    }
    line
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use rockbot_contracts::{InputAction, InputRequest, InputResponse};
    use rockbot_tools::UserInput;
    use tokio::time::advance;

    use super::*;

    struct Decliner;

    impl UserInput for Decliner {
        fn ask(&self, _: InputRequest, _: Duration) -> BoxFuture<'_, InputResponse> {
            Box::pin(std::future::ready(InputAction::Decline.into()))
        }
    }

    fn follow(client: &Client, session: &str) -> CallGuard {
        let session = SessionId::new(session).unwrap();
        let mut context = ToolContext::new("ask", session, AgentName::new("tester").unwrap());
        context.input = Some(Arc::new(Decliner));
        client.follow(&context, Elicitor::for_call(&"s".into(), &context))
    }

    fn can_ask(client: &Client) -> bool {
        client.open_request().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn request_of_an_abandoned_call_is_shown_in_no_other_conversation() {
        let client = Client::new(ClientCapabilities::default());
        assert!(!can_ask(&client), "no call runs");
        let one = follow(&client, "one");
        assert!(can_ask(&client));
        drop(one);
        let again = follow(&client, "one");
        assert!(can_ask(&client));
        again.responded();
        drop(again);
        let other = follow(&client, "other");
        assert!(!can_ask(&client), "the server may go on with the call of the first");
        drop(other);
        let third = follow(&client, "other");
        assert!(!can_ask(&client), "calls of several conversations were abandoned");
        advance(ABANDONED_TIME).await;
        assert!(can_ask(&client));
        third.responded();
        drop(third);
        let answered = follow(&client, "one");
        assert!(can_ask(&client), "the server responded to the others");
        drop(answered);
    }

    #[tokio::test]
    async fn requests_of_a_call_are_bounded() {
        let client = Client::new(ClientCapabilities::default());
        let _call = follow(&client, "one");
        let open: Vec<_> = (0..MAX_OPEN_REQUESTS).map(|_| client.open_request().unwrap()).collect();
        assert!(!can_ask(&client), "too many are open");
        drop(open);
        let made = u32::try_from(MAX_OPEN_REQUESTS).unwrap();
        assert!((made..MAX_REQUESTS).all(|_| can_ask(&client)));
        assert!(!can_ask(&client), "too many in one call");
    }
}
