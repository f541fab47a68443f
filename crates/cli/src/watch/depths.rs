//! Depths of the work queues of calls, as far as the bus reports them.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use rockbot_bus::{Bus, QueueState, report::QueueDepth};
use rockbot_contracts::{
    HandlerPool, PoolName, QueueName, QueueSpec, topology::monitored_requests,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// Interval between two inspections.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two inspections of a queue that does not exist. A broker logs each, as an error.
const MISSING_INTERVAL: Duration = Duration::from_secs(60);
/// Time limit of an inspection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The depth of a queue with its name.
pub(super) type NamedDepth = (QueueName, QueueDepth);

/// Inspects the work queues of calls at an interval.
pub(super) struct QueueDepths {
    bus: Arc<dyn Bus>,
    pools: Vec<HandlerPool>,
    /// Queues that this user may not inspect. They are not inspected again: a broker logs each refusal.
    refused: BTreeSet<QueueName>,
    /// Queues that did not exist, with the time of their next inspection.
    missing: BTreeMap<QueueName, Instant>,
    inspection: JoinSet<Vec<(QueueName, QueueState)>>,
    next: Instant,
}

impl QueueDepths {
    /// Creates an inspector of the queues of these pools and of those that handlers announce.
    pub(super) fn new(bus: Arc<dyn Bus>, pools: &[PoolName]) -> Self {
        Self {
            bus,
            pools: pools.iter().cloned().map(HandlerPool::Named).collect(),
            refused: BTreeSet::new(),
            missing: BTreeMap::new(),
            inspection: JoinSet::new(),
            next: Instant::now(),
        }
    }

    /// Starts an inspection if one is due and none is running. `announced` are further pools.
    pub(super) fn inspect_if_due(&mut self, announced: impl FnOnce() -> Vec<HandlerPool>) {
        let now = Instant::now();
        if now < self.next || !self.inspection.is_empty() {
            return;
        }
        self.next = now + INTERVAL;
        self.missing.retain(|_, next| *next > now);
        let names = self.names(&announced());
        if names.is_empty() {
            return;
        }
        let bus = self.bus.clone();
        self.inspection.spawn(async move {
            let report = timeout(TIMEOUT, bus.inspect(&names)).await;
            let queues = report.ok().and_then(Result::ok).map(|report| report.queues);
            let states = queues.unwrap_or_default().into_iter().map(|queue| queue.state);
            names.into_iter().zip(states).collect()
        });
    }

    /// Returns the names of the queues to inspect, each once.
    fn names(&self, announced: &[HandlerPool]) -> Vec<QueueName> {
        let pools = self.pools.iter().chain(announced).map(HandlerPool::invoke_key);
        let keys: BTreeSet<_> = monitored_requests().into_iter().chain(pools).collect();
        let names = keys.iter().map(|key| QueueSpec::work(key).name);
        let is_due =
            |name: &QueueName| !self.refused.contains(name) && !self.missing.contains_key(name);
        names.filter(is_due).collect()
    }

    /// Returns the depths of the running inspection when it has ended; waits forever without one. A failed
    /// inspection has no depths.
    ///
    /// # Cancellation
    /// Safe: no result is lost when the future is dropped.
    pub(super) async fn ended(&mut self) -> Vec<NamedDepth> {
        let Some(ended) = self.inspection.join_next().await else { return pending().await };
        let next = Instant::now() + MISSING_INTERVAL;
        let mut depths = Vec::new();
        for (name, state) in ended.unwrap_or_default() {
            match state {
                QueueState::Refused => drop(self.refused.insert(name)),
                QueueState::Missing => drop(self.missing.insert(name, next)),
                QueueState::Present(depth) => depths.push((name, depth)),
            }
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use rockbot_bus::{MemoryBus, Subscription};
    use rockbot_contracts::topology::tool_invoke;
    use rockbot_testkit::fixture::within_timeout;

    use super::*;

    #[tokio::test]
    async fn depths_are_those_of_existing_queues() {
        let bus = Arc::new(MemoryBus::new());
        let web = HandlerPool::Named(PoolName::new("web").unwrap());
        let mut consumers = Vec::new();
        for key in [tool_invoke(), web.invoke_key()] {
            let subscription = Subscription::new(QueueSpec::work(&key), 1);
            consumers.push(bus.consume(subscription).await.unwrap());
        }
        let mut depths = QueueDepths::new(bus, &[]);
        depths.inspect_if_due(|| vec![web.clone()]);
        let shown = within_timeout("an inspection", depths.ended()).await;
        let depth = QueueDepth { ready: 0, consumers: 1 };
        let expected =
            [tool_invoke(), web.invoke_key()].map(|key| (QueueSpec::work(&key).name, depth));
        assert_eq!(shown, expected);
        depths.inspect_if_due(|| panic!("it is not due"));
    }

    #[tokio::test(start_paused = true)]
    async fn missing_queues_are_inspected_once_a_minute() {
        let mut depths = QueueDepths::new(Arc::new(MemoryBus::new()), &[]);
        let all = depths.names(&[]).len();
        depths.inspect_if_due(Vec::new);
        assert_eq!(depths.ended().await, Vec::new());
        assert!(depths.names(&[]).is_empty());
        tokio::time::advance(MISSING_INTERVAL).await;
        depths.inspect_if_due(Vec::new);
        assert_eq!((depths.ended().await, depths.missing.len()), (Vec::new(), all));
    }

    #[tokio::test]
    async fn refused_queues_are_not_inspected_again() {
        let mut depths = QueueDepths::new(Arc::new(MemoryBus::new()), &[]);
        let name = QueueSpec::work(&tool_invoke()).name;
        let state = (name.clone(), QueueState::Refused);
        depths.inspection.spawn(async move { vec![state] });
        assert_eq!(within_timeout("a refusal", depths.ended()).await, Vec::new());
        let names = depths.names(&[]);
        assert!(names.len() == 2 && !names.contains(&name), "{names:?}");
    }
}
