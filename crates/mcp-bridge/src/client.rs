//! What a server may ask of us, and what it is answered: as little as possible.

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

/// The longest line of progress that is passed on, in characters.
const MAX_PROGRESS_CHARS: usize = 500;

/// Takes a line of progress. Must not block.
pub(crate) type ProgressSink = Arc<dyn Fn(String) + Send + Sync>;

/// This side of a session.
///
/// Nobody can be asked here: an elicitation is declined. There is no model to sample from and no
/// folder to show: as the library has it by default, the first is refused and the list of the second
/// is empty.
#[derive(Clone, Default)]
pub(crate) struct Client(Arc<Shared>);

#[derive(Default)]
struct Shared {
    progress: Mutex<HashMap<ProgressToken, ProgressSink>>,
    tools_changed: Notify,
}

impl Client {
    /// Passes progress under `token` on to `sink` until the guard is dropped.
    pub(crate) fn follow(&self, token: ProgressToken, sink: ProgressSink) -> Following {
        self.progress().insert(token.clone(), sink);
        Following { client: self.clone(), token }
    }

    /// Returns when the server said that its tools changed, once for any number of times.
    pub(crate) async fn tools_changed(&self) {
        self.0.tools_changed.notified().await;
    }

    /// Takes note that the server's tools changed.
    pub(crate) fn note_tools_changed(&self) {
        self.0.tools_changed.notify_one();
    }

    fn progress(&self) -> MutexGuard<'_, HashMap<ProgressToken, ProgressSink>> {
        self.0.progress.lock()
    }
}

/// Ends with the call whose progress it follows.
pub(crate) struct Following {
    client: Client,
    token: ProgressToken,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.client.progress().remove(&self.token);
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("rockbot-mcp-bridge", env!("CARGO_PKG_VERSION"));
        // Elicitation is declared because it is answered, if only with no: a server that needs it
        // then hears that nobody can be asked, where it would fail otherwise.
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, us)
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
            sink(line(&params));
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.note_tools_changed();
    }
}

/// `3 of 10: message`.
fn line(params: &ProgressNotificationParam) -> String {
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
