//! A question about a server to a bridge.

use std::time::Duration;

use rockbot_bus::{PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    ContentTrust, Envelope, Message, MessageId, RoutingKey,
    json::Limits,
    mcp::{McpManageError, McpManageErrorCode},
};
use tracing::{debug, warn};

/// How much longer than the bridge has the asker waits, so that the bridge's own word arrives.
const GRACE: Duration = Duration::from_secs(3);

/// Asks, and reads the answer. Ends three seconds after `within` at the latest.
pub(super) async fn ask<Q: Message, A: Message>(
    requester: &Requester,
    key: RoutingKey,
    question: &Q,
    server: &str,
    within: Duration,
) -> Result<A, McpManageError> {
    let envelope = Envelope::from_payload(question)
        .with_correlation_id(MessageId::generate().as_str())
        .with_source(requester.address().agent().as_str())
        .with_trust(ContentTrust::ToolRequest);
    let request = Request {
        key,
        envelope,
        timeout: within,
        grace: GRACE,
        on_interim: None,
        // A bridge does not know the second of two.
        retry: false,
        abandoned: None,
    };
    let answer = requester.request(request).await.map_err(|error| explain(server, &error))?;
    match answer.message_type() {
        McpManageError::TYPE => Err(answer
            .decode::<McpManageError>(Limits::default())
            .unwrap_or_else(|error| unreadable(server, &error))),
        _ => answer.decode(Limits::default()).map_err(|error| unreadable(server, &error)),
    }
}

/// A refusal with words for a model.
pub(super) fn refusal(server: &str, code: McpManageErrorCode, message: &str) -> McpManageError {
    McpManageError { server_name: server.to_owned(), code, message: message.to_owned() }
}

fn explain(server: &str, error: &RequestError) -> McpManageError {
    // The error names the broker, which is not a model's business.
    debug!(%error, "a bridge was not asked, or did not answer");
    let message = match error {
        RequestError::Publish(PublishError::Unroutable { .. }) => {
            "no bridge to MCP servers is there now; try again later"
        }
        RequestError::Publish(PublishError::Unconfirmed { .. })
        | RequestError::TimedOut { .. }
        | RequestError::Stopped => {
            "the bridge to MCP servers did not answer in time; what was asked may have been done"
        }
        _ => "the bridges to MCP servers are out of reach now; try again later",
    };
    refusal(server, McpManageErrorCode::Unavailable, message)
}

fn unreadable(server: &str, error: &dyn std::fmt::Display) -> McpManageError {
    warn!("unreadable answer of a bridge");
    debug!(%error, "unreadable answer of a bridge");
    let message = "the answer of the bridge could not be read";
    refusal(server, McpManageErrorCode::Unavailable, message)
}
