//! Continues turns whose process is gone: a search at the start of the process and at intervals.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use metrics::gauge;
use rockbot_contracts::SessionId;
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    handler::{InboxHandler, Replicas},
    jitter::jittered,
    ownership::{Claim, Ownership},
};

/// Shortest and longest time between two searches, in intervals.
const JITTER: Range<f64> = 0.875..1.125;
/// Time until a conversation that could not be continued is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Conversations remembered as not continued.
const MAX_FAILED: usize = 4096;

/// Searches for turns without a process until it is stopped.
#[derive(Debug)]
pub(super) struct TurnScan {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TurnScan {
    /// Starts to search, and continues at most `concurrency` turns at a time.
    pub(super) fn start(inbox: Arc<InboxHandler>, interval: Duration, concurrency: u16) -> Self {
        let stop = inbox.stop.clone();
        let permits = Arc::new(Semaphore::new(usize::from(concurrency)));
        let scanner = Scanner { inbox, permits, failed: HashMap::new(), turns: JoinSet::new() };
        let task = tokio::spawn(scanner.run(interval, stop.clone()));
        Self { stop, task }
    }

    /// Stops the search, and waits for the turns that it continued. They end with the agent.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            warn!(%error, "search for open turns failed");
        }
    }
}

impl Drop for TurnScan {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Scanner {
    inbox: Arc<InboxHandler>,
    permits: Arc<Semaphore>,
    /// Conversations that could not be continued, and when.
    failed: HashMap<SessionId, Instant>,
    turns: JoinSet<(SessionId, bool)>,
}

impl Scanner {
    async fn run(mut self, interval: Duration, stop: CancellationToken) {
        loop {
            if let Some(Replicas { ownership, .. }) = &self.inbox.replicas {
                let ownership = ownership.clone();
                if stop.run_until_cancelled(self.scan(&ownership)).await.is_none() {
                    break;
                }
            }
            if stop.run_until_cancelled(sleep(jittered(interval, JITTER))).await.is_none() {
                break;
            }
        }
        while self.turns.join_next().await.is_some() {}
    }

    /// Continues the open turns that no process runs.
    async fn scan(&mut self, ownership: &Ownership) {
        while let Some(ended) = self.turns.try_join_next() {
            if let Ok((session, false)) = ended
                && self.failed.len() < MAX_FAILED
            {
                self.failed.insert(session, Instant::now());
            }
        }
        self.failed.retain(|_, at| at.elapsed() < RETRY_AFTER);
        let found = match self.inbox.agent.conversations().unfinished().await {
            Ok(sessions) => ownership.unheld(sessions).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let sessions = match found {
            Ok(sessions) => sessions,
            Err(error) => return debug!(%error, "search for open turns failed; retrying"),
        };
        let mut unowned = 0_u32;
        for session in sessions {
            if !self.try_resume(ownership, session).await {
                unowned += 1;
            }
        }
        gauge!("rockbot_agent_unowned_turns").set(f64::from(unowned));
    }

    /// Returns `true` if a process continues the turn.
    async fn try_resume(&mut self, ownership: &Ownership, session: SessionId) -> bool {
        if self.failed.contains_key(&session) {
            return false;
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else { return false };
        match ownership.claim(&session).await {
            Ok(Claim::Owned(hold, order)) => {
                drop(order);
                let inbox = self.inbox.clone();
                self.turns.spawn(async move {
                    let resumed = inbox.resume(&session).await;
                    hold.release().await;
                    drop(permit);
                    (session, resumed)
                });
                true
            }
            Ok(Claim::Held(_)) => true,
            Err(error) => {
                debug!(session_id = %session, %error, "open turn not claimed");
                false
            }
        }
    }
}
