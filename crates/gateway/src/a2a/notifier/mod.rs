//! Delivery of push notifications: one process of all replicas notifies each target.

mod attempt;
mod delivery;

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::delivery::Delivery;
use super::{
    A2a,
    push::{Push, PushEntry},
};
use crate::{a2a_parts::PushOptions, open_counts::OpenCounts};

/// Maximum number of targets that this process notifies. Others wait for the next scan, or another replica.
const MAX_DELIVERIES: usize = 512;
/// Maximum number of targets of one identity among them.
const MAX_OWN_DELIVERIES: usize = 64;
/// Maximum number of open targets that a scan reads.
const MAX_SCANNED: usize = 4096;
/// Maximum number of tasks that are read from agents at a time: the requests of a process are bounded, and other
/// faces make them too.
const MAX_READS: usize = 32;
/// Time limit of a scan.
const SCAN_TIMEOUT: Duration = Duration::from_secs(5);

/// Notifies the targets of push notifications.
pub(crate) struct Notifier {
    a2a: Arc<A2a>,
    push: Arc<Push>,
    options: PushOptions,
    opened: mpsc::Receiver<PushEntry>,
    deliveries: JoinSet<()>,
    active: Active,
    counts: OpenCounts,
    reads: Arc<Semaphore>,
    /// Index of the target with which the next scan begins.
    scan_start: usize,
    /// Cancelled when the server stops: deliveries end after their attempt.
    stop: CancellationToken,
}

/// Names of the targets that this process notifies, or tries to.
type Active = Arc<Mutex<HashSet<String>>>;

/// Removes a name from the active ones.
struct ActiveGuard(Active, String);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Notifier {
    pub(super) fn new(
        a2a: Arc<A2a>,
        push: Arc<Push>,
        options: PushOptions,
        opened: mpsc::Receiver<PushEntry>,
    ) -> Self {
        Self {
            a2a,
            push,
            options,
            opened,
            deliveries: JoinSet::new(),
            active: Active::default(),
            counts: OpenCounts::default(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            scan_start: 0,
            stop: CancellationToken::new(),
        }
    }

    /// Notifies targets until `stop` is cancelled; then ends the open attempts within `drain`, and leaves undelivered
    /// events to other replicas or the next start.
    ///
    /// # Cancellation
    /// Dropping the future ends all attempts. Another process goes on when their leases expire.
    pub(crate) async fn run(mut self, stop: &CancellationToken, drain: Duration) {
        let mut scans = interval(self.options.scan_interval);
        scans.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(entry) = self.opened.recv() => self.start(entry),
                _ = scans.tick() => {
                    stop.run_until_cancelled(self.scan()).await;
                }
                Some(ended) = self.deliveries.join_next() => {
                    if let Err(error) = ended {
                        warn!(%error, "delivery of push notifications failed");
                    }
                }
            }
        }
        self.stop.cancel();
        let ended = async { while self.deliveries.join_next().await.is_some() {} };
        if timeout(drain, ended).await.is_err() {
            warn!("drain timed out with open push notifications");
        }
    }

    /// Starts the deliveries to open targets that no process notifies.
    async fn scan(&mut self) {
        match timeout(SCAN_TIMEOUT, self.push.records.open(MAX_SCANNED)).await {
            Ok(Ok(mut entries)) => {
                // Each scan begins with other ones, so that those beyond the maximum get their turn.
                let first = self.scan_start.checked_rem(entries.len()).unwrap_or_default();
                entries.rotate_left(first);
                self.scan_start = first + MAX_OWN_DELIVERIES;
                if entries.len() == MAX_SCANNED {
                    warn!("too many open targets of push notifications; some are not continued");
                }
                entries.into_iter().for_each(|entry| self.start(entry));
            }
            Ok(Err(error)) => warn!(%error, "targets of push notifications not read"),
            Err(_) => warn!("targets of push notifications not read in time"),
        }
    }

    fn start(&mut self, entry: PushEntry) {
        let is_served = self.a2a.parts.agents.contains(&entry.open.agent);
        let is_active = self.active.lock().contains(&entry.name);
        if !is_served || is_active {
            return;
        }
        let subject = Arc::from(entry.open.subject.as_str());
        let Ok(permit) = self.counts.admit(&subject, MAX_OWN_DELIVERIES, MAX_DELIVERIES) else {
            debug!("too many targets of push notifications; one more waits");
            return;
        };
        self.active.lock().insert(entry.name.clone());
        let active = ActiveGuard(self.active.clone(), entry.name.clone());
        let (a2a, push, options) = (self.a2a.clone(), self.push.clone(), self.options.clone());
        let (reads, stop) = (self.reads.clone(), self.stop.clone());
        let delivery = Delivery::new(a2a, push, options, entry, reads, stop);
        self.deliveries.spawn(async move {
            delivery.run().await;
            drop((active, permit));
        });
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.deliveries.len();
        f.debug_struct("Notifier").field("deliveries", &open).finish_non_exhaustive()
    }
}
