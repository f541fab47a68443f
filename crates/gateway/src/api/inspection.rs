//! Inspections of queues, whose results all viewers share.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, HandlerPool, QueueName};
use rockbot_monitor::queues::{Services, work_queue_names};
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::problem::Problem;

/// Time limit of an inspection.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The result of the last inspection.
pub(super) struct Inspection<T> {
    /// Time for which it counts as current.
    fresh: Duration,
    last: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T> Inspection<T> {
    pub(super) fn new(fresh: Duration) -> Self {
        Self { fresh, last: Mutex::default() }
    }

    /// Returns the current result. Without one, runs `inspect`; requests meanwhile wait for its result and share
    /// it.
    pub(super) async fn current(
        &self,
        inspect: impl Future<Output = Result<T, Problem>>,
    ) -> Result<Arc<T>, Problem> {
        let mut last = self.last.lock().await;
        if let Some((at, result)) = last.as_ref()
            && at.elapsed() < self.fresh
        {
            return Ok(result.clone());
        }
        let silent = |_| Problem::unavailable("the broker did not respond in time; try again");
        let inspected = timeout(INSPECT_TIMEOUT, inspect).await.map_err(silent)?;
        let result = Arc::new(inspected?);
        *last = Some((Instant::now(), result.clone()));
        Ok(result)
    }

    /// Discards the result.
    pub(super) async fn discard(&self) {
        *self.last.lock().await = None;
    }
}

/// Returns the names of the work queues of a fleet with these handlers and agents.
pub(super) fn work_queues(catalog: &CatalogSnapshot, agents: &[AgentName]) -> Vec<QueueName> {
    let pools: BTreeSet<_> = catalog.pools().into_iter().chain([HandlerPool::Unnamed]).collect();
    let pools: Vec<_> = pools.into_iter().collect();
    work_queue_names(&pools, Services::Fleet, agents)
}
