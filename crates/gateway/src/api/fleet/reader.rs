//! Inspection of the fleet, shared by all viewers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

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
    queues::{Services, inspect_queues, work_queue_names},
};
use rockbot_tool_rpc::catalog::{CatalogSnapshot, KnownHandler};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::view::{AgentStateView, BusView, FleetView, PoolView};
use crate::{
    api::{
        Api,
        calls::CallBoard,
        clock::now_ms,
        problem::{Problem, ProblemBody},
    },
    parts::GatewayParts,
};

/// Time for which an inspection counts as current.
const FRESH: Duration = Duration::from_secs(5);
/// Time limit of an inspection.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit for the first announcement of a handler.
const CATALOG_WAIT: Duration = Duration::from_secs(2);

/// Inspects the fleet, at most once in 5 s.
pub(crate) struct FleetReader {
    /// The connection that may inspect most queues.
    bus: Arc<dyn Bus>,
    calls: Option<Arc<CallBoard>>,
    agents: Arc<[AgentName]>,
    operator: String,
    last: Mutex<Option<(Instant, Arc<FleetView>)>>,
}

impl FleetReader {
    pub(crate) fn new(parts: &GatewayParts, calls: Option<Arc<CallBoard>>) -> Self {
        let bus = parts.letters.clone().unwrap_or_else(|| parts.bus.clone());
        let operator = User::Operator.name(&parts.namespace);
        Self { bus, calls, agents: parts.agents.clone(), operator, last: Mutex::default() }
    }

    /// Returns the state of the fleet. Others who ask meanwhile share the inspection.
    pub(crate) async fn current(&self) -> Result<Arc<FleetView>, Problem> {
        let mut last = self.last.lock().await;
        if let Some((at, view)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(view.clone());
        }
        let inspected = timeout(INSPECT_TIMEOUT, self.inspect()).await;
        let silent = || Problem::unavailable("the broker did not respond in time; try again");
        let view = Arc::new(inspected.map_err(|_| silent())??);
        *last = Some((Instant::now(), view.clone()));
        Ok(view)
    }

    async fn inspect(&self) -> Result<FleetView, Problem> {
        let catalog = match &self.calls {
            Some(calls) => calls.view().catalog(CATALOG_WAIT).await,
            None => CatalogSnapshot::default(),
        };
        let handlers: Vec<KnownHandler> = catalog.handlers().cloned().collect();
        let pools: BTreeSet<_> =
            catalog.pools().into_iter().chain([HandlerPool::Unnamed]).collect();
        let pools: Vec<_> = pools.into_iter().collect();
        let names = work_queue_names(&pools, Services::Fleet, &self.agents);
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
            pools: PoolView::of(&handlers),
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
