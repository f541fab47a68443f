//! Concurrency limits across all processes on one store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::Executed;
use rockbot_store::{
    InvalidKey, Key, Lease, LeaseError, Renewal, Store, StoreError, lease::ATTEMPT_TIMEOUT,
};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{info, warn};

use crate::{context::ToolContext, failure::ToolFailure};

/// Time after which the permit of a dead holder expires.
const TTL: Duration = Duration::from_secs(10);
/// Time after which a holder that cannot renew its permit gives it up. Shorter than [`TTL`].
const GIVE_UP: Duration = Duration::from_secs(8);
/// Shortest and longest pause between two attempts to acquire a permit.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(800);
/// Maximum concurrency of a limit. An attempt may query the lease of each permit.
pub const MAX_FLEET_CONCURRENCY: u16 = 64;

/// Behavior of a limit while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutStore {
    /// Each process enforces the limit by itself.
    #[default]
    Local,
    /// Calls are rejected as unavailable.
    Refuse,
}

/// Settings of a [`FleetLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetRules {
    /// Concurrent calls in all processes, 1 to [`MAX_FLEET_CONCURRENCY`].
    pub running: u16,
    /// Maximum time that a call waits before it is rejected as overloaded. Its deadline applies as
    /// well; with [`Duration::MAX`] only the deadline applies.
    pub wait: Duration,
    /// Behavior while the store is unavailable.
    pub without_store: WithoutStore,
}

/// Store of the permits of fleet limits.
#[derive(Clone)]
pub struct FleetStore {
    /// Store that all processes share.
    pub store: Arc<dyn Store>,
    /// Namespace of the fleet in the store.
    pub namespace: Arc<str>,
    /// Unique identifier of this process.
    pub instance: Arc<str>,
}

/// A concurrency limit whose permits are leases in a store.
///
/// The permits of a dead holder expire after 10 s. A holder that cannot reach the store loses its
/// permit but keeps running, so more calls than the limit may run during an outage. Calls of one
/// process are served in order; there is no order between processes.
pub struct FleetLimit {
    name: Arc<str>,
    fleet: FleetStore,
    keys: Vec<Key>,
    rules: FleetRules,
    local: Arc<Semaphore>,
    /// Counter of attempts. It selects the permit to try first, and makes lease owners unique.
    attempts: AtomicU64,
    is_store_unavailable: AtomicBool,
    renewals: TaskTracker,
}

/// Right to run, released when dropped.
#[derive(Debug)]
pub struct FleetPermit {
    _local: OwnedSemaphorePermit,
    /// `None` if the store was unavailable.
    _renewal: Option<DropGuard>,
}

impl FleetLimit {
    /// Creates a limit called `name`: `tool:` or `server:`, and the name of the tool or server.
    ///
    /// # Errors
    /// When the names are not valid keys of the store.
    pub fn new(name: &str, fleet: FleetStore, rules: FleetRules) -> Result<Arc<Self>, InvalidKey> {
        let running = rules.running.clamp(1, MAX_FLEET_CONCURRENCY);
        let key = |number: u16| {
            let number = number.to_string();
            Key::new([&*fleet.namespace, "limits", name, &number])
        };
        let keys = (0..running).map(key).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            name: name.into(),
            fleet,
            keys,
            rules,
            local: Arc::new(Semaphore::new(running.into())),
            attempts: AtomicU64::new(0),
            is_store_unavailable: AtomicBool::new(false),
            renewals: TaskTracker::new(),
        }))
    }

    /// Waits for a permit. `repeatable` is `true` if running the tool twice is harmless.
    ///
    /// # Errors
    /// Overloaded when no permit becomes free in time, timed out at the deadline, cancelled when the
    /// caller cancels, unavailable when the store is unavailable and the settings require it. The tool
    /// did not run.
    ///
    /// # Cancellation
    /// A permit that was being acquired becomes free after 10 s.
    pub async fn acquire(
        &self,
        context: &ToolContext,
        repeatable: bool,
    ) -> Result<FleetPermit, ToolFailure> {
        let (started, executed) = (Instant::now(), Executed::No);
        let waits_until = started.checked_add(self.rules.wait);
        let until = waits_until.map_or(context.deadline, |until| until.min(context.deadline));
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            permit = timeout_at(until, self.acquire_any()) => match permit {
                Ok(permit) => permit,
                Err(_) if until == context.deadline => {
                    Err(ToolFailure::TimedOut { after: until - started, executed, repeatable })
                }
                Err(_) => {
                    let (name, wait) = (self.name.replacen(':', " ", 1), self.rules.wait);
                    let message = format!(
                        "concurrency limit of {name} reached for {wait:?}; call again later"
                    );
                    Err(ToolFailure::Overloaded { message })
                }
            },
        }
    }

    async fn acquire_any(&self) -> Result<FleetPermit, ToolFailure> {
        // The semaphore is never closed.
        let Ok(local) = self.local.clone().acquire_owned().await else {
            return Err(self.unavailable());
        };
        let mut pause = MIN_PAUSE;
        loop {
            let attempt = timeout(ATTEMPT_TIMEOUT, self.try_acquire()).await;
            let late = || StoreError::Unavailable { reason: "no reply in time".to_owned() };
            match attempt.unwrap_or_else(|_| Err(late())) {
                Ok(Some(lease)) => {
                    if self.is_store_unavailable.swap(false, Ordering::Relaxed) {
                        info!(limit = &*self.name, "store available; limit shared again");
                    }
                    return Ok(FleetPermit { _local: local, _renewal: Some(self.renew(lease)) });
                }
                Ok(None) => sleep(pause).await,
                Err(error) => {
                    if !self.is_store_unavailable.swap(true, Ordering::Relaxed) {
                        let fallback = self.rules.without_store;
                        warn!(limit = &*self.name, %error, ?fallback, "store of a limit unavailable");
                    }
                    return match self.rules.without_store {
                        WithoutStore::Local => Ok(FleetPermit { _local: local, _renewal: None }),
                        WithoutStore::Refuse => Err(self.unavailable()),
                    };
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Tries each permit once.
    async fn try_acquire(&self) -> Result<Option<Lease>, StoreError> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}/{attempt}", self.fleet.instance);
        let first = usize::try_from(attempt).unwrap_or(0) % self.keys.len();
        for key in self.keys[first..].iter().chain(&self.keys[..first]) {
            match Lease::acquire(self.fleet.store.clone(), key.clone(), &owner, TTL).await {
                Ok(lease) => return Ok(Some(lease)),
                Err(LeaseError::HeldBy { .. } | LeaseError::Lost { .. }) => {}
                Err(LeaseError::Store(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Renews a lease until the guard is dropped.
    fn renew(&self, lease: Lease) -> DropGuard {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        self.renewals.spawn(async move {
            let key = lease.key().clone();
            match lease.keep_alive(Renewal::new(GIVE_UP), &stopped).await {
                // A lease that cannot be released expires.
                Some(lease) => drop(timeout(ATTEMPT_TIMEOUT, lease.release()).await),
                None => warn!(permit = %key, "concurrency permit lost"),
            }
        });
        stop.drop_guard()
    }

    fn unavailable(&self) -> ToolFailure {
        let name = self.name.replacen(':', " ", 1);
        let message = format!("the store of the limit of {name} is unavailable; call again later");
        ToolFailure::Unavailable { message, executed: Executed::No }
    }
}

impl std::fmt::Debug for FleetLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetLimit")
            .field("name", &self.name)
            .field("rules", &self.rules)
            .field("held", &self.renewals.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::ToolErrorCode;
    use rockbot_store::{Clock, ManualClock, MemoryStore};

    use super::*;
    use crate::testing::context;

    struct Fixture {
        store: Arc<MemoryStore>,
        clock: ManualClock,
    }

    impl Fixture {
        fn new() -> Self {
            let clock = ManualClock::new();
            Self { store: Arc::new(MemoryStore::new(Clock::from(&clock))), clock }
        }

        fn process(&self, instance: &str, without_store: WithoutStore) -> Arc<FleetLimit> {
            self.process_with_wait(instance, without_store, Duration::from_secs(5))
        }

        fn process_with_wait(
            &self,
            instance: &str,
            without_store: WithoutStore,
            wait: Duration,
        ) -> Arc<FleetLimit> {
            let fleet = FleetStore {
                store: self.store.clone(),
                namespace: "rockbot".into(),
                instance: instance.into(),
            };
            let rules = FleetRules { running: 2, wait, without_store };
            FleetLimit::new("tool:search", fleet, rules).unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn processes_share_permits() {
        let fixture = Fixture::new();
        let one = fixture.process("one", WithoutStore::Local);
        let two = fixture.process("two", WithoutStore::Local);
        let context = context("search");
        let first = one.acquire(&context, false).await.unwrap();
        let _second = two.acquire(&context, false).await.unwrap();
        let rejected = two.acquire(&context, false).await.expect_err("both permits are taken");
        assert_eq!(
            (rejected.code(), rejected.executed()),
            (ToolErrorCode::Overloaded, Executed::No)
        );
        let mut pending = Box::pin(two.acquire(&context, false));
        assert!(pending.as_mut().now_or_never().is_none());
        drop(first);
        pending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unbounded_wait_ends_at_deadline() {
        let fixture = Fixture::new();
        let one = fixture.process_with_wait("one", WithoutStore::Local, Duration::MAX);
        let mut context = context("search");
        context.deadline = Instant::now() + Duration::from_secs(600);
        let held = [
            one.acquire(&context, false).await.unwrap(),
            one.acquire(&context, false).await.unwrap(),
        ];
        let late = one.acquire(&context, false).await.expect_err("both permits are taken");
        assert_eq!(late.code(), ToolErrorCode::Timeout);
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn permit_of_dead_holder_expires() {
        let fixture = Fixture::new();
        let context = context("search");
        let key = |number: &str| Key::new(["rockbot", "limits", "tool:search", number]).unwrap();
        for number in ["0", "1"] {
            // The lease is not renewed.
            Lease::acquire(fixture.store.clone(), key(number), "dead", TTL).await.unwrap();
        }
        let one = fixture.process("one", WithoutStore::Local);
        one.acquire(&context, false).await.expect_err("both permits are taken");
        fixture.clock.advance(TTL);
        one.acquire(&context, false).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn store_outage_keeps_limit_per_process() {
        let fixture = Fixture::new();
        let context = context("search");
        let one = fixture.process("one", WithoutStore::Local);
        let two = fixture.process("two", WithoutStore::Local);
        fixture.store.close().await;
        let _held = [
            one.acquire(&context, false).await.unwrap(),
            one.acquire(&context, false).await.unwrap(),
            two.acquire(&context, false).await.unwrap(),
        ];
        let rejected =
            one.acquire(&context, false).await.expect_err("two calls run in this process");
        assert_eq!(rejected.code(), ToolErrorCode::Overloaded);
    }

    #[tokio::test(start_paused = true)]
    async fn store_outage_rejects_calls_if_configured() {
        let fixture = Fixture::new();
        let one = fixture.process("one", WithoutStore::Refuse);
        fixture.store.close().await;
        let rejected = one.acquire(&context("search"), false).await.expect_err("no store");
        let outcome = (rejected.code(), rejected.executed(), rejected.is_retryable());
        assert_eq!(outcome, (ToolErrorCode::Unavailable, Executed::No, true));
    }
}
