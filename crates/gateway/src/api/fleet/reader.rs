//! Inspection of the fleet, shared by all viewers.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use rockbot_bus::{Bus, QueueState};
use rockbot_contracts::{
    AgentName, HandlerPool, QueueSpec,
    identity::User,
    topology::{tool_invoke_mcp, user_message},
};
use rockbot_monitor::{
    WorkQueue,
    findings::{FleetState, findings},
    queues::inspect_queues,
};
use rockbot_tool_rpc::catalog::{CatalogSnapshot, KnownHandler};

use super::view::{AgentStateView, BusView, FleetView, PoolView};
use crate::{
    api::{
        Api,
        calls::CallBoard,
        inspection::{Inspection, work_queues},
        problem::{Problem, ProblemBody},
    },
    clock::now_ms,
    parts::GatewayParts,
};

/// Time for which an inspection counts as current.
const FRESH: Duration = Duration::from_secs(5);
/// Time limit for the first announcement of a handler.
const CATALOG_WAIT: Duration = Duration::from_secs(2);

/// Inspects the fleet, at most once in 5 s.
pub(crate) struct FleetReader {
    /// The connection that may inspect most queues.
    bus: Arc<dyn Bus>,
    calls: Option<Arc<CallBoard>>,
    agents: Arc<[AgentName]>,
    operator: String,
    last: Inspection<FleetView>,
}

impl FleetReader {
    pub(crate) fn new(parts: &GatewayParts, calls: Option<Arc<CallBoard>>) -> Self {
        let bus = parts.letters.clone().unwrap_or_else(|| parts.bus.clone());
        let operator = User::Operator.name(&parts.namespace);
        Self { bus, calls, agents: parts.agents.clone(), operator, last: Inspection::new(FRESH) }
    }

    /// Returns the state of the fleet.
    pub(crate) async fn current(&self) -> Result<Arc<FleetView>, Problem> {
        self.last.current(self.inspect()).await
    }

    async fn inspect(&self) -> Result<FleetView, Problem> {
        let catalog = match &self.calls {
            Some(calls) => calls.view().catalog(CATALOG_WAIT).await,
            None => CatalogSnapshot::default(),
        };
        let handlers: Vec<KnownHandler> = catalog.handlers().cloned().collect();
        let names = work_queues(&catalog, &self.agents);
        let (report, mut queues) = inspect_queues(self.bus.as_ref(), &names).await?;
        // A service that was never started has no queue.
        let optional = |queue: &WorkQueue| queue.pool() != Some(HandlerPool::Unnamed);
        queues.retain(|queue| queue.state != QueueState::Missing || !optional(queue));
        let conflicts = catalog.conflicts();
        let has_bridge = queues.iter().any(|queue| {
            let consumers = queue.state.depth().map_or(0, |depth| depth.consumers);
            queue.name == QueueSpec::work(&tool_invoke_mcp()).name && consumers > 0
        });
        let state = FleetState {
            queues: &queues,
            handlers: &handlers,
            conflicts: &conflicts,
            has_bridge,
            operator: &self.operator,
        };
        let agents = self.agents.iter().map(|agent| agent_state(agent, &queues)).collect();
        Ok(FleetView {
            at_ms: now_ms(),
            bus: BusView { product: report.product, connected: self.bus.is_ready() },
            queues: queues.iter().map(Into::into).collect(),
            handlers: handlers.iter().map(Into::into).collect(),
            pools: PoolView::from_handlers(&handlers),
            agents,
            findings: findings(state).into_iter().map(Into::into).collect(),
        })
    }
}

fn agent_state(agent: &AgentName, queues: &[WorkQueue]) -> AgentStateView {
    let inbox = QueueSpec::work(&user_message(agent)).name;
    let state = queues.iter().find(|queue| queue.name == inbox).map(|queue| queue.state);
    let state = match state {
        Some(QueueState::Present(depth)) if depth.consumers > 0 => "running",
        Some(QueueState::Refused) => "unknown",
        Some(_) | None => "not_running",
    };
    AgentStateView { name: agent.to_string(), state }
}

/// Returns the state of the fleet.
#[utoipa::path(get, path = "/api/v1/fleet", tag = "fleet",
    responses((status = 200, body = FleetView), (status = "default", body = ProblemBody)))]
pub(crate) async fn read(State(api): State<Arc<Api>>) -> Result<Json<FleetView>, Problem> {
    api.calls()?;
    Ok(Json((*api.fleet.current().await?).clone()))
}
