//! Management requests to a bridge.

use std::time::Duration;

use rockbot_bus::{PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    ContentTrust, Envelope, Message, MessageId, RoutingKey,
    json::Limits,
    mcp::{McpManageError, McpManageErrorCode},
};
use tracing::{debug, warn};

/// Time beyond the bridge's own that the caller waits, so that the bridge's timeout error arrives.
const GRACE: Duration = Duration::from_secs(3);

/// Sends a request and decodes its reply. Fails at the latest 3 s after `timeout`.
pub(super) async fn send_request<Q: Message, R: Message>(
    requester: &Requester,
    key: RoutingKey,
    request: &Q,
    server: &str,
    timeout: Duration,
) -> Result<R, McpManageError> {
    let envelope = Envelope::from_payload(request)
        .with_correlation_id(MessageId::generate().as_str())
        .with_source(requester.address().agent().as_str())
        .with_trust(ContentTrust::ToolRequest);
    let request = Request {
        key,
        envelope,
        timeout,
        grace: GRACE,
        on_interim: None,
        // A bridge does not recognize a repeated request.
        retry: false,
        abandoned: None,
    };
    let reply = requester.request(request).await.map_err(|error| request_failed(server, &error))?;
    match reply.message_type() {
        McpManageError::TYPE => Err(reply
            .decode::<McpManageError>(Limits::default())
            .unwrap_or_else(|error| unreadable_reply(server, &error))),
        _ => reply.decode(Limits::default()).map_err(|error| unreadable_reply(server, &error)),
    }
}

/// Creates an error with a message for models.
pub(super) fn manage_error(
    server: &str,
    code: McpManageErrorCode,
    message: &str,
) -> McpManageError {
    McpManageError { server_name: server.to_owned(), code, message: message.to_owned() }
}

fn request_failed(server: &str, error: &RequestError) -> McpManageError {
    // The error is only logged: it names the broker, which models must not see.
    debug!(%error, "request to a bridge failed");
    let message = match error {
        RequestError::Publish(PublishError::Unroutable { .. }) => {
            "no bridge to MCP servers is available; try again later"
        }
        RequestError::Publish(PublishError::Unconfirmed { .. })
        | RequestError::TimedOut { .. }
        | RequestError::Stopped => {
            "the bridge to MCP servers did not reply in time; the request may have been carried out"
        }
        _ => "the bridges to MCP servers are unavailable; try again later",
    };
    manage_error(server, McpManageErrorCode::Unavailable, message)
}

fn unreadable_reply(server: &str, error: &dyn std::fmt::Display) -> McpManageError {
    warn!("unreadable reply of a bridge");
    // At debug level: the error quotes the reply.
    debug!(%error, "unreadable reply of a bridge");
    let message = "the reply of the bridge could not be read";
    manage_error(server, McpManageErrorCode::Unavailable, message)
}
