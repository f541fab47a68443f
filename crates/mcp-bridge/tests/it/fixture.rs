//! Bridges with servers, and calls of their tools.

use std::{sync::Arc, time::Duration};

use rockbot_bus::Requester;
use rockbot_contracts::{AgentName, InstanceId, SessionId};
use rockbot_mcp_bridge::{
    Bridge, BridgeOptions, BridgeService, ServersFile, transport::DialPolicy,
};
use rockbot_testkit::fixture::{BusFixture, reply_address, wait_until};
use rockbot_tool_rpc::{
    InvokeOptions,
    mcp::{BusGateway, McpGateway},
};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Returns the configuration of a server with one misbehaving tool for each fault.
pub(crate) fn misbehaving_server() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/misbehaving.py");
    json!({"command": "python3", "args": [script]})
}

pub(crate) fn servers_file(servers: &Value) -> ServersFile {
    let text = json!({"mcpServers": servers}).to_string();
    ServersFile::parse(text.as_bytes(), |name| std::env::var(name).ok())
        .expect("a valid servers file")
}

/// Starts a bridge and waits until all servers are connected.
pub(crate) async fn bridge(servers: Value) -> Arc<Bridge> {
    bridge_with(BridgeOptions::default(), servers).await
}

/// Starts a bridge that may dial loopback addresses without TLS.
pub(crate) async fn bridge_to_loopback(servers: Value) -> Arc<Bridge> {
    bridge_to_loopback_with(BridgeOptions::default(), servers).await
}

pub(crate) async fn bridge_to_loopback_with(options: BridgeOptions, servers: Value) -> Arc<Bridge> {
    // In a process, `main` does this.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let allow_private = vec!["127.0.0.0/8".parse().expect("a network")];
    let dial = DialPolicy { allow_plain_http: true, allow_private, ..DialPolicy::default() };
    bridge_with(BridgeOptions { dial, ..options }, servers).await
}

async fn bridge_with(options: BridgeOptions, servers: Value) -> Arc<Bridge> {
    let bridge = Bridge::new(options);
    bridge.apply(servers_file(&servers)).await;
    let all_ready = || bridge.servers().iter().all(|server| server.ready);
    wait_until("connected servers", all_ready).await;
    bridge
}

pub(crate) fn context(tool: &str) -> ToolContext {
    let agent = AgentName::new("tester").expect("a name");
    let mut context = ToolContext::new(tool, SessionId::generate(), agent);
    context.deadline = Instant::now() + Duration::from_secs(30);
    context
}

pub(crate) async fn call(
    bridge: &Bridge,
    server: &str,
    tool: &str,
    arguments: Value,
) -> Result<ToolResult, ToolFailure> {
    bridge.call(server, tool, arguments, &context(tool)).await
}

/// A bridge that is reachable through two gateways: in its own process, and over an in-memory bus.
pub(crate) struct GatewayFixture {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) gateways: [(&'static str, Arc<dyn McpGateway>); 2],
    service: BridgeService,
}

impl GatewayFixture {
    pub(crate) async fn new(options: BridgeOptions, servers: Value) -> Self {
        let bridge = bridge_with(options, servers).await;
        let bus = BusFixture::memory();
        let instance = InstanceId::new("bridge-0").expect("an instance");
        let service = BridgeService::start(
            bus.remote.clone(),
            bridge.clone(),
            None,
            InvokeOptions::new(16),
            instance,
        );
        let service = service.await.expect("a service");
        let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("tester", "one")));
        let gateway = BusGateway::start(requester).await.expect("a gateway");
        let expected = bridge.servers().len();
        let index = gateway.index();
        wait_until("the server index", || index.borrow().len() == expected).await;
        let gateways: [(_, Arc<dyn McpGateway>); 2] =
            [("in process", bridge.clone()), ("over the bus", gateway)];
        Self { bridge, gateways, service }
    }

    pub(crate) async fn shut_down(self) {
        assert!(self.service.drain(Duration::from_secs(5)).await, "drained in time");
    }
}

/// Calls a tool and returns the text of its result.
pub(crate) async fn call_text(
    bridge: &Bridge,
    server: &str,
    tool: &str,
    arguments: Value,
) -> String {
    let result = call(bridge, server, tool, arguments).await;
    result.unwrap_or_else(|failure| panic!("{tool}: {failure}")).to_text().into_owned()
}
