//! Queues that servers share, so that calls wait here for what can't take many at once.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_contracts::Executed;
use rockbot_tools::{ToolContext, ToolFailure};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

/// A queue as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueConfig {
    /// Calls that run at once, at least 1.
    pub concurrent: u16,
}

/// The queues of a bridge, by name. First come, first served; who gives up leaves at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues(Arc<BTreeMap<String, Arc<Semaphore>>>);

impl Queues {
    pub(crate) fn new(configured: &BTreeMap<String, QueueConfig>) -> Self {
        let queue =
            |config: &QueueConfig| Arc::new(Semaphore::new(config.concurrent.max(1).into()));
        Self(Arc::new(
            configured.iter().map(|(name, config)| (name.clone(), queue(config))).collect(),
        ))
    }

    /// Waits for a place in the queue called `name`; a call of a server in no queue has one.
    ///
    /// # Errors
    /// When the deadline passes first, or the asker gives up: the tool did not run.
    pub(crate) async fn place(
        &self,
        name: Option<&str>,
        context: &ToolContext,
        repeatable: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, ToolFailure> {
        let Some(queue) = name.and_then(|name| self.0.get(name)) else { return Ok(None) };
        let after = context.remaining();
        let executed = Executed::No;
        tokio::select! {
            place = timeout_at(context.deadline, queue.clone().acquire_owned()) => match place {
                // It is never closed.
                Ok(place) => Ok(place.ok()),
                Err(_) => Err(ToolFailure::TimedOut { after, executed, repeatable }),
            },
            () = context.cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
        }
    }
}
