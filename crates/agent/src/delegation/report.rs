//! Reports on delegated work to the user, or to the agent that asked for it: the last one counts, at most one
//! per second for each.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{ReplyBody, TaskId};
use tokio::time::sleep;
use tracing::debug;

use super::{record::TaskKind, tasks::Delegation};

/// Interval between two reports on the same work.
const INTERVAL: Duration = Duration::from_secs(1);

impl Delegation {
    /// Sends a report and records it. No model of this agent reads it.
    pub(crate) fn report(self: &Arc<Self>, task: TaskId, text: String) {
        let Some(attached) = self.attached() else { return };
        if !self.reports.add(&task, text) {
            return;
        }
        let delegation = self.clone();
        attached.host.spawn(Box::pin(async move {
            while let Some(text) = delegation.reports.take(&task) {
                delegation.send_report(&task, text).await;
                sleep(INTERVAL).await;
            }
        }));
    }

    async fn send_report(&self, task: &TaskId, text: String) {
        let Some(attached) = self.attached() else { return };
        let recorded = attached.store.update(task, |record| {
            record.last_report.clone_from(&text);
            true
        });
        match recorded.await {
            Ok(Some(record)) => {
                if let (TaskKind::Received, Some(peers), Some(peer)) =
                    (record.kind, self.peers(), record.peer.as_deref())
                {
                    return peers.report(&record, peer, &text).await;
                }
                let Some(message) = record.message() else { return };
                let body = ReplyBody::DelegationProgressed { task_id: task.clone(), text };
                let _ = self.notify_user(&record.root, message, body).await;
            }
            Ok(None) => {}
            Err(error) => debug!(%task, %error, "report not recorded"),
        }
    }
}
