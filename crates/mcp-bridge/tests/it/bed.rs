//! A bridge with servers, and calls of their tools.

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

/// The entry of a server that does everything wrong.
pub(crate) fn misbehaving() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/misbehaving.py");
    json!({"command": "python3", "args": [script]})
}

pub(crate) fn file(servers: &Value) -> ServersFile {
    let text = json!({"mcpServers": servers}).to_string();
    ServersFile::parse(text.as_bytes(), |name| std::env::var(name).ok()).expect("a file of servers")
}

/// A bridge with these servers, all of them connected.
pub(crate) async fn bridge(servers: Value) -> Arc<Bridge> {
    bridge_with(BridgeOptions::default(), servers).await
}

/// The same for servers that listen on this machine without TLS.
pub(crate) async fn bridge_to_loopback(servers: Value) -> Arc<Bridge> {
    // As the main of every process does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let allow_private = vec!["127.0.0.0/8".parse().expect("a network")];
    let dial = DialPolicy { allow_plain_http: true, allow_private, ..DialPolicy::default() };
    bridge_with(BridgeOptions { dial, ..BridgeOptions::default() }, servers).await
}

async fn bridge_with(options: BridgeOptions, servers: Value) -> Arc<Bridge> {
    let bridge = Bridge::new(options);
    bridge.apply(file(&servers)).await;
    let all_ready = || bridge.servers().iter().all(|server| server.ready);
    wait_until("every server to be connected", all_ready).await;
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

/// The two ways to a bridge: through its own process, and over a bus. Over the bus, the service and
/// everything between are as in a fleet.
pub(crate) struct Ways {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) gateways: [(&'static str, Arc<dyn McpGateway>); 2],
    service: BridgeService,
}

impl Ways {
    pub(crate) async fn to(options: BridgeOptions, servers: Value) -> Self {
        let bridge = bridge_with(options, servers).await;
        let bed = BusFixture::memory();
        let instance = InstanceId::new("bridge-0").expect("an instance");
        let service = BridgeService::start(
            bed.remote.clone(),
            bridge.clone(),
            None,
            InvokeOptions::new(16),
            instance,
        );
        let service = service.await.expect("a service");
        let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("tester", "one")));
        let gateway = BusGateway::start(requester).await.expect("a gateway");
        let known = bridge.servers().len();
        let index = gateway.index();
        wait_until("the index to arrive", || index.borrow().len() == known).await;
        let gateways: [(_, Arc<dyn McpGateway>); 2] =
            [("in this process", bridge.clone()), ("over the bus", gateway)];
        Self { bridge, gateways, service }
    }

    pub(crate) async fn end(self) {
        assert!(self.service.drain(Duration::from_secs(5)).await, "drained in time");
    }
}

/// The text of a call that works.
pub(crate) async fn said(bridge: &Bridge, server: &str, tool: &str, arguments: Value) -> String {
    let result = call(bridge, server, tool, arguments).await;
    result.unwrap_or_else(|failure| panic!("{tool}: {failure}")).to_text().into_owned()
}
