//! A caller inside the test process, for concurrent tool calls.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Requester};
use rockbot_contracts::{
    AgentName, InstanceId, RoutingKey, SessionId, ToolHints, ToolRegistration, ToolSource,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_tool_rpc::RemoteTool;
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolRegistry, ToolResult};
use serde_json::{Value, json};

/// Calls tools. Clones share one reply queue.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) requester: Arc<Requester>,
    executor: Arc<ToolExecutor>,
    timeout: Duration,
}

impl Caller {
    /// Creates a caller with a timeout for each call.
    pub(crate) fn new(bus: Arc<dyn Bus>, timeout: Duration) -> Self {
        Self::for_agent("caller", bus, timeout)
    }

    /// Creates a caller with the name of an agent.
    pub(crate) fn for_agent(agent: &str, bus: Arc<dyn Bus>, timeout: Duration) -> Self {
        let tools = ["bash", "read_file", "search", "write_file"];
        Self::with_tools(agent, bus, timeout, tools.map(|tool| (tool, tool_invoke())))
    }

    /// Creates a caller with the name of an agent that calls these tools, each with a routing key.
    pub(crate) fn with_tools<const N: usize>(
        agent: &str,
        bus: Arc<dyn Bus>,
        timeout: Duration,
        tools: [(&str, RoutingKey); N],
    ) -> Self {
        let name = AgentName::new(agent).expect("a name");
        let address = ReplyAddress::new(name, InstanceId::generate());
        let requester = Arc::new(Requester::new(bus, address));
        let registry = ToolRegistry::new();
        for (tool, key) in tools {
            let remote = RemoteTool::new(registration(tool), requester.clone(), key);
            registry.register(Arc::new(remote)).expect("registered");
        }
        Self { requester, executor: Arc::new(ToolExecutor::new(Arc::new(registry))), timeout }
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolResult, ToolFailure> {
        let context = self.context(tool, self.timeout);
        self.execute(context, &arguments).await
    }

    /// Returns the context of a new call of a tool.
    pub(crate) fn context(&self, tool: &str, timeout: Duration) -> ToolContext {
        let agent = self.requester.address().agent().clone();
        let mut context = ToolContext::new(tool, SessionId::generate(), agent);
        context.deadline = tokio::time::Instant::now() + timeout;
        context
    }

    /// Makes the call of a context.
    pub(crate) async fn execute(
        &self,
        context: ToolContext,
        arguments: &Value,
    ) -> Result<ToolResult, ToolFailure> {
        let arguments = arguments.to_string().into();
        self.executor.execute(ToolCall { context, arguments }).await
    }
}

/// Returns a registration that accepts any arguments. The handler validates them.
fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: name.to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}
