//! The client side of a session, with as few capabilities as possible.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::Notify;

/// The longest progress message that is forwarded, in characters.
const MAX_PROGRESS_CHARS: usize = 500;

/// Receives a progress message. Must not block.
pub(crate) type ProgressSink = Arc<dyn Fn(String) + Send + Sync>;

/// The handler of requests and notifications from the server.
///
/// There is no user to ask: elicitation is not declared, and declined when it is requested nevertheless.
/// There is no model to sample from and no folder to expose: rmcp's defaults refuse the first and return
/// an empty list for the second.
#[derive(Clone, Default)]
pub(crate) struct Client(Arc<Shared>);

#[derive(Default)]
struct Shared {
    progress: Mutex<HashMap<ProgressToken, ProgressSink>>,
    tools_changed: Notify,
}

impl Client {
    /// Forwards progress under `token` to `sink` until the guard is dropped.
    pub(crate) fn forward_progress(
        &self,
        token: ProgressToken,
        sink: ProgressSink,
    ) -> ProgressGuard {
        self.progress().insert(token.clone(), sink);
        ProgressGuard { client: self.clone(), token }
    }

    /// Completes when the server has announced changed tools or prompts; coalesces announcements.
    pub(crate) async fn tools_changed(&self) {
        self.0.tools_changed.notified().await;
    }

    /// Records that the server's tools changed.
    pub(crate) fn notify_tools_changed(&self) {
        self.0.tools_changed.notify_one();
    }

    fn progress(&self) -> MutexGuard<'_, HashMap<ProgressToken, ProgressSink>> {
        self.0.progress.lock()
    }
}

/// Stops forwarding progress when dropped.
pub(crate) struct ProgressGuard {
    client: Client,
    token: ProgressToken,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.client.progress().remove(&self.token);
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("rockbot-mcp-bridge", env!("CARGO_PKG_VERSION"));
        // Elicitation is not declared, so that a server uses what it has for clients without a person.
        ClientConfig::new(ClientCapabilities::default(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        _params: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let sink = self.progress().get(&params.progress_token).cloned();
        if let Some(sink) = sink {
            sink(format_progress(&params));
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.notify_tools_changed();
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
