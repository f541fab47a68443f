//! Cancels of delegated work. A cancel is recorded before it takes effect, so that a process that continues
//! or starts the work later sees it.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{SessionId, Spending, TaskId, TaskState};
use rockbot_store::StoreError;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{
    record::{TaskKind, TaskRecord},
    tasks::{Attached, Delegation},
};

/// Time limit for cancelled work to confirm its end.
const CONFIRM: Duration = Duration::from_secs(8);
/// Interval at which the records of other processes' work are read.
const POLL: Duration = Duration::from_millis(500);

/// Outcome of the cancel of all work of a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cancelled {
    ended: usize,
    /// Did not confirm its end.
    open: usize,
    /// Spending of the ended work.
    pub(crate) spent: Spending,
}

impl Cancelled {
    /// Returns the answer for the user; `None` if nothing was cancelled.
    pub(crate) fn text(&self) -> Option<String> {
        match (self.ended, self.open) {
            (0, 0) => None,
            (ended, 0) => Some(format!("Cancelled, with {ended} of its sub-agents.")),
            (ended, open) => Some(format!(
                "Cancelled, with {ended} of its sub-agents. {open} more did not confirm their end yet; \
                 see `rockbot tasks list`."
            )),
        }
    }
}

impl Delegation {
    /// Cancels all open work of a conversation, and waits up to 8 s for its end.
    pub(crate) async fn cancel_all(self: &Arc<Self>, session: &SessionId) -> Cancelled {
        let Some(attached) = self.attached() else { return Cancelled::default() };
        let open = match attached.store.of_session(session).await {
            Ok(records) => records.into_iter().filter(|record| !record.state.is_terminal()),
            Err(error) => {
                warn!(session_id = %session, %error, "delegated work not cancelled");
                return Cancelled::default();
            }
        };
        let open: Vec<_> = open.map(|record| record.task).collect();
        let mut cancelled = Cancelled::default();
        let mut recorded = Vec::new();
        for task in open {
            match self.request_cancel(attached, &task).await {
                Ok(true) => recorded.push(task),
                Ok(false) => {}
                Err(error) => {
                    warn!(%task, %error, "delegated work not cancelled");
                    cancelled.open += 1;
                }
            }
        }
        let until = Instant::now() + CONFIRM;
        for task in recorded {
            match self.confirmed(attached, &task, until).await {
                Some(record) => {
                    cancelled.ended += 1;
                    cancelled.spent += record.spent;
                }
                None => cancelled.open += 1,
            }
        }
        cancelled
    }

    /// Cancels work, and waits up to 8 s for its end. Returns its spending; `None` if it has ended.
    pub(crate) async fn cancel_task(
        self: &Arc<Self>,
        task: &TaskId,
    ) -> Result<Option<Spending>, StoreError> {
        let Some(attached) = self.attached() else { return Ok(None) };
        if !self.request_cancel(attached, task).await? {
            return Ok(None);
        }
        let record = self.confirmed(attached, task, Instant::now() + CONFIRM).await;
        Ok(Some(record.map(|record| record.spent).unwrap_or_default()))
    }

    /// Records a cancel, and ends the work if this process does it. Returns `false` if the work has ended.
    pub(super) async fn request_cancel(
        self: &Arc<Self>,
        attached: &Attached,
        task: &TaskId,
    ) -> Result<bool, StoreError> {
        let changed = attached.store.update(task, |record| {
            let is_open = matches!(
                record.state,
                TaskState::Submitted | TaskState::Running | TaskState::InputRequired
            );
            if is_open {
                record.state = TaskState::Cancelling;
            }
            is_open
        });
        let changed = changed.await?.filter(|record| record.state == TaskState::Cancelling);
        if let Some(record) = &changed {
            if record.kind == TaskKind::Received {
                // While it waited for an answer, it had no marker.
                attached.mark(record).await?;
            }
            self.cancel_here(task);
            self.changed.notify_waiters();
            // Work that no process does is ended by this one.
            self.start(record.kind, task.clone(), None);
        }
        Ok(changed.is_some())
    }

    /// Waits until cancelled work has ended.
    async fn confirmed(
        &self,
        attached: &Attached,
        task: &TaskId,
        until: Instant,
    ) -> Option<TaskRecord> {
        loop {
            let changed = self.changed.notified();
            if let Ok(Some(record)) = attached.store.get(task).await
                && record.state.is_terminal()
            {
                return Some(record);
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(until.min(Instant::now() + POLL)) => {}
            }
        }
    }
}
