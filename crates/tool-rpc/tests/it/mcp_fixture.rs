//! Fixture: a bridge with scripted servers, and an agent on the same bus.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::Requester;
use rockbot_contracts::{
    InstanceId, ToolHints,
    identity::CallerPolicy,
    mcp::{
        McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetails,
        McpServerDetailsRequest, McpServerSummary, McpToolDefinition,
    },
};
use rockbot_testkit::fixture::{BusFixture, reply_address};
use rockbot_tool_rpc::mcp::{BusGateway, IndexAnnouncer, ManageWorker, McpGateway, McpIndex};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult, fingerprint::server_fingerprint};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A gateway with a fixed set of servers, which a test can change.
pub(crate) struct ScriptedGateway {
    index: watch::Sender<McpIndex>,
    hangs: bool,
    /// Servers whose details or removal were requested.
    pub(crate) requested: Mutex<Vec<String>>,
}

pub(crate) fn definition(tool: &str) -> McpToolDefinition {
    McpToolDefinition {
        name: tool.to_owned(),
        model_name: format!("s__{tool}"),
        title: None,
        description: format!("test tool {tool}"),
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
        output_schema: None,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

pub(crate) fn server(name: &str, tools: &[&str]) -> McpServerSummary {
    let definitions: Vec<_> = tools.iter().map(|tool| definition(tool)).collect();
    McpServerSummary {
        name: name.to_owned(),
        display_name: format!("The {name} server"),
        summary: "For tests.".to_owned(),
        tool_count: u32::try_from(tools.len()).unwrap(),
        tool_names: tools.iter().map(ToString::to_string).collect(),
        fingerprint: server_fingerprint(&definitions),
        ..McpServerSummary::default()
    }
}

impl ScriptedGateway {
    pub(crate) fn new(servers: impl IntoIterator<Item = McpServerSummary>) -> Arc<Self> {
        let index = watch::Sender::new(servers.into_iter().collect());
        Arc::new(Self { index, hangs: false, requested: Mutex::default() })
    }

    pub(crate) fn new_hanging(server: McpServerSummary) -> Arc<Self> {
        let index = watch::Sender::new([server].into_iter().collect());
        Arc::new(Self { index, hangs: true, requested: Mutex::default() })
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut McpIndex)) {
        self.index.send_modify(change);
    }

    fn find(&self, server: &str) -> Result<McpServerSummary, McpManageError> {
        self.requested.lock().unwrap().push(server.to_owned());
        self.index.borrow().get(server).cloned().ok_or_else(|| McpManageError {
            server_name: server.to_owned(),
            code: McpManageErrorCode::NotFound,
            message: "unknown server".to_owned(),
        })
    }
}

impl McpGateway for ScriptedGateway {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.subscribe()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(async move {
            let server = self.find(&request.server_name)?;
            if self.hangs {
                std::future::pending::<()>().await;
            }
            let tools = server.tool_names.iter().map(|tool| definition(tool)).collect();
            Ok(McpServerDetails { server, tools, ..McpServerDetails::default() })
        })
    }

    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { Ok(ToolResult::text(format!("{server}/{tool} {arguments}"))) })
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(async move {
            let added = server(&request.server_name, &["new"]);
            self.change(|index| index.insert(added.clone()));
            Ok(added)
        })
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(async move {
            self.find(server)?;
            self.change(|index| {
                index.remove(server);
            });
            Ok(())
        })
    }
}

/// A bridge process on the bus, without the handler of calls.
pub(crate) struct Bridge {
    pub(crate) gateway: Arc<ScriptedGateway>,
    pub(crate) announcer: IndexAnnouncer,
    pub(crate) manage: ManageWorker,
}

impl Bridge {
    pub(crate) async fn start(bus: &BusFixture, name: &str, gateway: Arc<ScriptedGateway>) -> Self {
        Self::start_for(bus, name, gateway, CallerPolicy::Any).await
    }

    pub(crate) async fn start_for(
        bus: &BusFixture,
        name: &str,
        gateway: Arc<ScriptedGateway>,
        callers: CallerPolicy,
    ) -> Self {
        let instance = InstanceId::new(name).unwrap();
        let port: Arc<dyn McpGateway> = gateway.clone();
        let manage = ManageWorker::start(&bus.remote, port, "mcp-bridge", &instance, callers, None);
        let manage = manage.await.expect("started");
        let announcer =
            IndexAnnouncer::start(bus.remote.clone(), gateway.as_ref(), "mcp-bridge", instance);
        let announcer = announcer.await.expect("started");
        Self { gateway, announcer, manage }
    }
}

/// Starts the gateway of an agent.
pub(crate) async fn agent(bus: &BusFixture, instance: &str) -> Arc<BusGateway> {
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", instance)));
    BusGateway::start(requester).await.expect("started")
}

pub(crate) fn names(gateway: &dyn McpGateway) -> Vec<String> {
    gateway.index().borrow().servers().map(|server| server.name.clone()).collect()
}

pub(crate) fn details_request(server: &str) -> McpServerDetailsRequest {
    McpServerDetailsRequest { server_name: server.to_owned(), tool_name: None, after: None }
}

pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
