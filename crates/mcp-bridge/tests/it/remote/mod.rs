//! Transports to remote servers, against hostile servers.

mod dialing;
pub(crate) mod hostile;
pub(crate) mod http;
mod sse;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RoleClient, RunningService};
use rmcp::transport::Transport;
use rmcp::{Peer, ServiceError};
use rockbot_mcp_bridge::transport::{DialPolicy, RemoteServer};
use rockbot_testkit::fixture::within_timeout;
use tokio::task::JoinHandle;

pub(crate) type Session = RunningService<RoleClient, ()>;

/// Returns a policy that allows servers on this machine, without TLS.
pub(crate) fn loopback() -> DialPolicy {
    let private = ["127.0.0.0/8", "::1"].map(|target| target.parse().unwrap());
    DialPolicy { allow_plain_http: true, allow_private: private.to_vec(), ..DialPolicy::default() }
}

fn server(url: &str) -> RemoteServer {
    let server = RemoteServer::new(Url::parse(url).unwrap(), Arc::new(loopback()));
    RemoteServer { idle_timeout: Duration::from_secs(10), ..server }
}

pub(crate) async fn open<T>(transport: T) -> Result<Session, Box<ClientInitializeError>>
where
    T: Transport<RoleClient> + 'static,
{
    let session = within_timeout("a session", ().serve(transport)).await;
    session.map_err(Box::new)
}

/// Calls a tool and returns the text of its result.
pub(crate) async fn call(peer: &Peer<RoleClient>, tool: &str) -> Result<String, ServiceError> {
    call_within(peer, tool, rockbot_testkit::fixture::TEST_TIMEOUT).await
}

async fn call_within(
    peer: &Peer<RoleClient>,
    tool: &str,
    timeout: Duration,
) -> Result<String, ServiceError> {
    let params = CallToolRequestParams::new(tool.to_owned());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::with_timeout(timeout);
    let handle = peer.send_cancellable_request(request, options).await?;
    match handle.await_response().await? {
        ServerResult::CallToolResult(result) => {
            Ok(result.content[0].as_text().unwrap().text.clone())
        }
        other => panic!("{other:?}"),
    }
}

fn spawn_call(session: &Session, tool: &'static str) -> JoinHandle<Result<String, ServiceError>> {
    let peer = session.peer().clone();
    tokio::spawn(async move { call(&peer, tool).await })
}

/// Asserts that a faulty response fails its own call with the `expected` error, while a concurrent call
/// continues and later calls succeed.
async fn assert_fails_only_its_call(
    session: &Session,
    hostile: &hostile::HostileServer,
    tool: &str,
    expected: &str,
) {
    let concurrent = spawn_call(session, "wait");
    within_timeout("the concurrent call at the server", hostile.wait_called()).await;
    let error = within_timeout(tool, call(session.peer(), tool)).await.expect_err(tool);
    assert!(error.to_string().contains(expected), "{tool}: {error}");
    assert!(!concurrent.is_finished(), "{tool}");
    hostile.release_wait();
    assert_eq!(
        within_timeout("the concurrent call", concurrent).await.unwrap().unwrap(),
        "waited",
        "{tool}"
    );
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good",
        "{tool}"
    );
}
