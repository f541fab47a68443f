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
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
        ResourceUpdatedNotificationParam,
    },
    service::{NotificationContext, RequestContext},
};
use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::ToolContext;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    elicitation::{self, Elicitor},
    followed_resources::FollowedResources,
};

/// The longest progress message that is forwarded, in characters.
const MAX_PROGRESS_CHARS: usize = 500;
/// The largest number of requests for input that are open in a call. Further ones are declined.
const MAX_ASKING: usize = 4;

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
    calls: Mutex<BTreeMap<u64, RunningCall>>,
    next_call: AtomicU64,
    tools_changed: Notify,
}

/// A call that the server has.
struct RunningCall {
    /// The token of its progress, once it is sent.
    token: Option<ProgressToken>,
    context: ToolContext,
    elicitor: Option<Elicitor>,
    /// Number of open requests for input. Marked as changed by everything that the server sends.
    asking: watch::Sender<usize>,
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
    /// is dropped.
    pub(crate) fn follow(&self, context: &ToolContext, elicitor: Option<Elicitor>) -> CallGuard {
        let (asking, activity) = watch::channel(0);
        let ended = CancellationToken::new();
        let (context, token) = (context.clone(), None);
        let call = RunningCall { token, context, elicitor, asking, ended: ended.clone() };
        let id = self.shared.next_call.fetch_add(1, Ordering::Relaxed);
        self.calls().insert(id, call);
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
    /// it returns `None` while calls of several conversations run: a user must not see the requests of another.
    fn start_asking(&self) -> Option<(Elicitor, AskingGuard)> {
        let calls = self.calls();
        let first = calls.values().next()?.conversation();
        if calls.values().any(|call| call.conversation() != first) {
            debug!("request for input declined: calls of several conversations are running");
            return None;
        }
        let can_ask =
            |call: &&RunningCall| call.elicitor.is_some() && *call.asking.borrow() < MAX_ASKING;
        let call = calls.values().find(can_ask)?;
        call.asking.send_modify(|asking| *asking += 1);
        let guard = AskingGuard { asking: call.asking.clone(), ended: call.ended.clone() };
        Some((call.elicitor.clone()?, guard))
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<u64, RunningCall>> {
        self.shared.calls.lock()
    }
}

/// Counts an open request for input until it is dropped.
struct AskingGuard {
    asking: watch::Sender<usize>,
    /// Cancelled when the call has ended.
    ended: CancellationToken,
}

impl Drop for AskingGuard {
    fn drop(&mut self) {
        self.asking.send_modify(|asking| *asking = asking.saturating_sub(1));
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
        if let Some(call) = self.client.calls().get_mut(&self.id) {
            call.token = Some(token);
        }
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
        self.client.calls().remove(&self.id);
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
        let Some((elicitor, guard)) = self.start_asking() else {
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

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let context = {
            let calls = self.calls();
            let is_meant =
                |call: &&RunningCall| call.token.as_ref() == Some(&params.progress_token);
            calls.values().find(is_meant).map(|call| {
                call.asking.send_modify(|_| {});
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
