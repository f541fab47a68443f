//! Calls of tools by clients that do not speak the protocol, such as people with a form.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{ToolCallId, ToolRegistration};
use rockbot_tools::ToolFailure;
use tokio::time::Instant;

use crate::{
    call_id::{CallContent, RequestIdentity},
    client::McpClient,
    fleet::McpFleet,
    shared_calls::{CallOutcome, CallRequest, JoinedCall},
    tool_call::{execute, is_key, local_failure, outcome},
};

/// Time that a call runs on without a request that waits for it.
const RECONNECT_TIME: Duration = Duration::from_secs(10);

/// A call of a tool by a client that does not speak the protocol.
#[derive(Debug, Clone)]
pub struct DirectCall {
    /// Name of the tool.
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// Identifies the call among those of the client, 1 to 255 bytes without control characters. Another call
    /// with the same key, tool and arguments joins the first one or gets its outcome; the handler's journal
    /// recognizes it in other processes.
    pub key: String,
    /// Timeout; at most `mcp_server.max_timeout`, and `mcp_server.call_timeout` by default.
    pub timeout: Option<Duration>,
}

impl DirectCall {
    /// Returns the id of the call, which is derived from the client and the key.
    #[must_use]
    pub fn id(&self, client: &McpClient) -> ToolCallId {
        let content = CallContent::new(&self.tool, &self.arguments);
        RequestIdentity::Key(self.key.clone()).call_id(client.name(), &content)
    }

    fn request(&self, client: &McpClient) -> CallRequest {
        CallRequest {
            id: self.id(client),
            client: client.name().clone(),
            content: CallContent::new(&self.tool, &self.arguments),
            may_repeat: true,
            grace: RECONNECT_TIME,
        }
    }
}

/// Error for a [`DirectCall`] that was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectCallError {
    /// No such tool, or the client may not use it.
    #[error("unknown tool {name}; it is not announced, or not permitted to this client")]
    UnknownTool {
        /// The requested name.
        name: String,
    },
    /// The key is empty, too long, or contains a control character.
    #[error("the key of the call must have 1 to 255 bytes without control characters")]
    Key,
}

/// A call that was made, or refused with a failure that says whether the tool ran.
#[derive(Debug, Clone)]
pub struct CompletedCall {
    /// Identifier of the call, derived from the client and the key.
    pub id: ToolCallId,
    /// The result of the tool, or the failure of the call.
    pub outcome: Arc<CallOutcome>,
}

impl CompletedCall {
    /// Waits for the outcome of a call that was joined, or refused.
    async fn wait(id: ToolCallId, joined: Result<JoinedCall, ToolFailure>) -> Self {
        let outcome = match joined {
            Ok(mut joined) => outcome(&mut joined.outcome).await,
            Err(failure) => Arc::new(Err(failure)),
        };
        Self { id, outcome }
    }
}

impl McpFleet {
    /// Returns the definition of a tool that the client may use. Waits for an unknown one until the tools of the
    /// fleet are known, 8 s after the start at most.
    pub async fn tool(&self, client: &McpClient, name: &str) -> Option<ToolRegistration> {
        let tool = self.find_tool(name).await?;
        let registration = tool.registration();
        client.permits(registration).then(|| registration.clone())
    }

    /// Calls a tool, or joins the same call, and waits for its outcome.
    ///
    /// # Errors
    /// See [`DirectCallError`]; nothing ran.
    ///
    /// # Cancellation
    /// When the future is dropped, and no other one waits for the same call, the call is cancelled after 10 s.
    pub async fn call(
        &self,
        client: &McpClient,
        call: DirectCall,
    ) -> Result<CompletedCall, DirectCallError> {
        if !is_key(&call.key) {
            return Err(DirectCallError::Key);
        }
        let Some(tool) = self.tool(client, &call.tool).await else {
            return Err(DirectCallError::UnknownTool { name: call.tool });
        };
        let request = call.request(client);
        let id = request.id.clone();
        let mut context = self.context(client, &call.tool);
        context.tool_call_id = id.clone();
        context.has_client_key = !tool.hints.read_only;
        context.deadline = Instant::now() + self.section.timeout(call.timeout, false);
        let arguments = call.arguments;
        let has_client_key = context.has_client_key;
        let joined = self.calls.join(request, |control| execute(self, context, arguments, control));
        let joined = joined.map_err(|failure| local_failure(failure, has_client_key));
        Ok(CompletedCall::wait(id, joined).await)
    }

    /// Joins a call that this process makes or made, whether or not its tool still exists, and waits for its outcome.
    /// Returns `None` if it has no call with this key.
    ///
    /// # Cancellation
    /// As for [`call`](Self::call).
    pub async fn repeated(&self, client: &McpClient, call: &DirectCall) -> Option<CompletedCall> {
        let request = call.request(client);
        let joined = self.calls.join_existing(&request)?;
        Some(CompletedCall::wait(request.id, joined).await)
    }
}
