//! A bridge and an agent with the permissions of their users.

use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};
use rockbot_bus::Requester;
use rockbot_contracts::{
    InstanceId,
    identity::CallerPolicy,
    mcp::{
        McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetails,
        McpServerDetailsRequest, McpServerSummary,
    },
};
use rockbot_testkit::fixture::{TEST_TIMEOUT, reply_address, within_timeout};
use rockbot_tool_rpc::mcp::{BusGateway, IndexAnnouncer, ManageWorker, McpGateway, McpIndex};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::sync::watch;

use crate::identity::SecuredBroker;

/// A gateway that shows one server and refuses everything else.
struct OneServer(watch::Sender<McpIndex>);

fn server() -> McpServerSummary {
    McpServerSummary {
        name: "git".to_owned(),
        display_name: "Git".to_owned(),
        fingerprint: "f".to_owned(),
        ..McpServerSummary::default()
    }
}

fn refused(server: &str) -> McpManageError {
    let code = McpManageErrorCode::NotPermitted;
    McpManageError { server_name: server.to_owned(), code, message: "not here".to_owned() }
}

impl McpGateway for OneServer {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.0.subscribe()
    }

    fn details(
        &self,
        _: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(ready(Ok(McpServerDetails { server: server(), ..McpServerDetails::default() })))
    }

    fn call<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(ready(Err(ToolFailure::failed("not here"))))
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(ready(Err(refused(&request.server_name))))
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(ready(Err(refused(server))))
    }
}

#[tokio::test]
async fn agent_discovers_and_manages_servers_of_a_bridge() {
    let broker = SecuredBroker::start().await;
    let bridge = broker.bus("rockbot.mcp-bridge").await;
    let agent = broker.bus("rockbot.agent.assistant").await;
    let requester = Arc::new(Requester::new(agent, reply_address("assistant", "one")));
    let known = BusGateway::start(requester).await.expect("listening");
    let gateway = Arc::new(OneServer(watch::Sender::new([server()].into_iter().collect())));
    let instance = InstanceId::new("bridge-0").expect("an instance");
    let port: Arc<dyn McpGateway> = gateway.clone();
    let manage =
        ManageWorker::start(&bridge, port, "mcp-bridge", &instance, CallerPolicy::Known, None);
    let manage = manage.await.expect("consuming");
    let announcer = IndexAnnouncer::start(bridge, gateway.as_ref(), "mcp-bridge", instance);
    let announcer = announcer.await.expect("announcing");
    assert!(known.wait_for_any(TEST_TIMEOUT).await, "the agent received the index");
    let request =
        McpServerDetailsRequest { server_name: "GIT".to_owned(), tool_name: None, after: None };
    let details = within_timeout("a response", known.details(request)).await.expect("details");
    assert_eq!(details.server, server());
    let error =
        within_timeout("a refusal", known.unregister("git")).await.expect_err("not permitted");
    assert_eq!(error.code, McpManageErrorCode::NotPermitted);
    let add = McpRegisterServerRequest {
        server_name: "new".to_owned(),
        command: Some("x".to_owned()),
        arguments: Vec::new(),
        url: None,
    };
    let error = within_timeout("a refusal", known.register(add)).await.expect_err("by any bridge");
    assert_eq!(error.code, McpManageErrorCode::NotPermitted);
    announcer.stop().await;
    drop(manage);
}
