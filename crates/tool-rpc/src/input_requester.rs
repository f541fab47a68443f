//! Requests of running tools for input from the users of their calls.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    AgentName, ContentTrust, Envelope, InputAction, InputId, InputRequest, InputResponse,
    InstanceId, RoutingKey, ToolCallId,
    mcp::{McpInputAnswer, McpInputAnswered, McpInputAsked},
    topology::progress_key,
};
use rockbot_tools::UserInput;
use tokio::{sync::oneshot, time::timeout};
use tracing::{debug, info};

/// Maximum number of open requests. Further ones count as cancelled.
const MAX_OPEN: usize = 256;

/// Passes requests for input on to the callers of the tools, and takes their responses. The handler of the
/// calls and the worker for management requests share it.
pub struct InputRequester {
    bus: Arc<dyn Bus>,
    source: String,
    instance: InstanceId,
    open: Mutex<HashMap<InputId, OpenRequest>>,
}

struct OpenRequest {
    caller: AgentName,
    request: InputRequest,
    response: oneshot::Sender<InputResponse>,
}

impl InputRequester {
    /// Creates the requester of the service `service` in the process `instance`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, service: &str, instance: &InstanceId) -> Arc<Self> {
        let source = format!("{service}/{instance}");
        Arc::new(Self { bus, source, instance: instance.clone(), open: Mutex::default() })
    }

    /// Returns the port to the user of a call; `None` if its caller receives no progress.
    pub(crate) fn for_call(
        self: &Arc<Self>,
        call: &ToolCallId,
        caller: &AgentName,
        reply_to: &RoutingKey,
    ) -> Option<Arc<dyn UserInput>> {
        let key = progress_key(reply_to)?;
        let (requester, call, caller) = (self.clone(), call.clone(), caller.clone());
        Some(Arc::new(CallInput { requester, call, caller, key }))
    }

    /// Takes a response. It counts once, from the caller of the tool, and if it is valid.
    pub(crate) fn answer(&self, caller: &AgentName, answer: McpInputAnswer) -> McpInputAnswered {
        let McpInputAnswer { input_id, response } = answer;
        let mut open = self.open();
        let is_valid = open.get(&input_id).is_some_and(|request| {
            request.caller == *caller && request.request.check(&response).is_ok()
        });
        let request = if is_valid { open.remove(&input_id) } else { None };
        drop(open);
        let accepted = request.is_some_and(|request| request.response.send(response).is_ok());
        if !accepted {
            debug!(%input_id, "response to an unknown or closed request for input");
        }
        McpInputAnswered { input_id, accepted }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<InputId, OpenRequest>> {
        self.open.lock()
    }
}

/// The user of one call.
struct CallInput {
    requester: Arc<InputRequester>,
    call: ToolCallId,
    caller: AgentName,
    /// Address of the progress of the call.
    key: RoutingKey,
}

impl CallInput {
    async fn request(&self, request: InputRequest, limit: Duration) -> InputResponse {
        let input_id = InputId::generate();
        let (response, responded) = oneshot::channel();
        {
            let mut open = self.requester.open();
            if open.len() >= MAX_OPEN {
                info!("too many requests for input are open");
                return InputAction::Cancel.into();
            }
            let (caller, request) = (self.caller.clone(), request.clone());
            open.insert(input_id.clone(), OpenRequest { caller, request, response });
        }
        let guard = OpenGuard { requester: &self.requester, input_id };
        let asked = McpInputAsked {
            tool_call_id: self.call.clone(),
            input_id: guard.input_id.clone(),
            bridge: self.requester.instance.clone(),
            expires_in_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            request,
        };
        let envelope = Envelope::from_payload(&asked)
            .with_correlation_id(self.call.as_str())
            .with_source(self.requester.source.as_str())
            .with_trust(ContentTrust::ToolOutput);
        let publication = Publication::mandatory(self.key.clone(), envelope);
        let published = self.requester.bus.publish(publication);
        let answered = async {
            if let Err(error) = published.await {
                debug!(%error, "request for input not published");
                return InputAction::Cancel.into();
            }
            responded.await.unwrap_or_else(|_| InputAction::Cancel.into())
        };
        timeout(limit, answered).await.unwrap_or_else(|_| InputAction::Cancel.into())
    }
}

impl UserInput for CallInput {
    fn ask(&self, request: InputRequest, limit: Duration) -> BoxFuture<'_, InputResponse> {
        Box::pin(self.request(request, limit))
    }
}

/// Closes a request when it is dropped.
struct OpenGuard<'a> {
    requester: &'a InputRequester,
    input_id: InputId,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.requester.open().remove(&self.input_id);
    }
}

impl fmt::Debug for InputRequester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open().len();
        f.debug_struct("InputRequester").field("open", &open).finish_non_exhaustive()
    }
}
