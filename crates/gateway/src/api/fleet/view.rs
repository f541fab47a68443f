//! The fleet as responses show it.

use std::collections::BTreeMap;

use rockbot_bus::{QueueState, report::QueueDepth};
use rockbot_contracts::HandlerPool;
use rockbot_monitor::{Finding, WorkQueue};
use rockbot_tool_rpc::catalog::KnownHandler;
use serde::Serialize;
use utoipa::ToSchema;

/// The fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetView {
    /// Time of the inspection in Unix milliseconds.
    pub(crate) at_ms: u64,
    /// The bus.
    pub(crate) bus: BusView,
    /// Work queues and inboxes of agents.
    pub(crate) queues: Vec<QueueView>,
    /// Handlers that announced themselves.
    pub(crate) handlers: Vec<HandlerView>,
    /// Pools with a handler.
    pub(crate) pools: Vec<PoolView>,
    /// The agents that the gateway is configured with.
    pub(crate) agents: Vec<AgentStateView>,
    /// Problems of the fleet.
    pub(crate) findings: Vec<FindingView>,
}

/// The bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusView {
    /// Product and version.
    pub(crate) product: String,
    /// It is connected.
    pub(crate) connected: bool,
}

/// A queue. Numbers are absent when they are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueView {
    /// Its name, without the namespace.
    pub(crate) name: String,
    /// `present`, `missing`, or `refused` if this user may not inspect it.
    pub(crate) state: &'static str,
    /// Messages that wait for a consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<u32>,
    /// Consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consumers: Option<u32>,
    /// Its dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters: Option<u32>,
}

impl From<&WorkQueue> for QueueView {
    fn from(queue: &WorkQueue) -> Self {
        let number = |state: QueueState, pick: fn(QueueDepth) -> u32| state.depth().map(pick);
        Self {
            name: queue.name.to_string(),
            state: state_name(queue.state),
            ready: number(queue.state, |depth| depth.ready),
            consumers: number(queue.state, |depth| depth.consumers),
            dead_letters: number(queue.dead_letters, |depth| depth.ready),
        }
    }
}

/// Returns the name of the state of a queue.
pub(crate) fn state_name(state: QueueState) -> &'static str {
    match state {
        QueueState::Present(_) => "present",
        QueueState::Missing => "missing",
        QueueState::Refused => "refused",
    }
}

/// A handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandlerView {
    /// `SERVICE/INSTANCE`.
    pub(crate) name: String,
    /// The service.
    pub(crate) handler: String,
    /// The process.
    pub(crate) instance: String,
    /// Its pool; absent for the one without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// Its version, if announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Number of its tools.
    pub(crate) tools: usize,
    /// Its load at the last announcement, if announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<LoadView>,
}

/// Load of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadView {
    /// Running calls.
    pub(crate) running: u64,
    /// Received calls that wait.
    pub(crate) waiting: u64,
    /// Age of the oldest call in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_ms: Option<u64>,
    /// Maximum number of calls that run at once, if announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<u64>,
}

impl From<&KnownHandler> for HandlerView {
    fn from(handler: &KnownHandler) -> Self {
        Self {
            name: handler.name(),
            handler: handler.handler.clone(),
            instance: handler.instance.to_string(),
            pool: pool_name(&handler.pool),
            version: handler.version.clone(),
            tools: handler.tools.len(),
            load: handler.load.map(|load| LoadView {
                running: load.running,
                waiting: load.waiting,
                oldest_ms: load.oldest_ms,
                capacity: load.capacity,
            }),
        }
    }
}

/// A pool of handlers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolView {
    /// Its name; absent for the one without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Number of its handlers.
    pub(crate) handlers: usize,
    /// Number of the tools of its handlers.
    pub(crate) tools: usize,
}

impl PoolView {
    pub(crate) fn from_handlers(handlers: &[KnownHandler]) -> Vec<Self> {
        let mut pools: BTreeMap<&HandlerPool, (usize, Vec<&str>)> = BTreeMap::new();
        for handler in handlers {
            let (number, tools) = pools.entry(&handler.pool).or_default();
            *number += 1;
            tools.extend(handler.tools.iter().map(|tool| tool.name.as_str()));
        }
        let view = |(pool, (handlers, mut tools)): (&HandlerPool, (usize, Vec<&str>))| {
            tools.sort_unstable();
            tools.dedup();
            Self { name: pool_name(pool), handlers, tools: tools.len() }
        };
        pools.into_iter().map(view).collect()
    }
}

/// Returns the name of a pool; `None` for the one without.
pub(crate) fn pool_name(pool: &HandlerPool) -> Option<String> {
    match pool {
        HandlerPool::Unnamed => None,
        HandlerPool::Named(name) => Some(name.to_string()),
    }
}

/// An agent of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentStateView {
    /// Its name.
    pub(crate) name: String,
    /// `running`, `not_running`, or `unknown` if its inbox may not be inspected.
    pub(crate) state: &'static str,
}

/// A problem of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindingView {
    /// `warning`, `suspicious` or `unusable`.
    pub(crate) severity: &'static str,
    /// The problem, and what to do.
    pub(crate) message: String,
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        Self { severity: finding.severity.as_str(), message: finding.message }
    }
}
