//! Limits that hold for all processes on one store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::Executed;
use rockbot_store::{
    InvalidKey, Key, Lease, LeaseError, Store, StoreError, lease::ATTEMPT_TIMEOUT,
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

/// How long a place stays taken when its holder is gone.
const TTL: Duration = Duration::from_secs(10);
/// A place that can't be renewed is given up before that.
const GIVE_UP: Duration = Duration::from_secs(8);
/// The pauses between two looks for a free place.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// The most places of a limit: each look asks for all of them.
pub const MOST_PLACES: u16 = 64;

/// What becomes of calls while the store is out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutStore {
    /// The limit holds in each process by itself.
    #[default]
    Local,
    /// They are refused as unavailable.
    Refuse,
}

/// Bounds of a [`FleetLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetRules {
    /// Calls that run at once in all processes, 1 to [`MOST_PLACES`].
    pub running: u16,
    /// How long a call waits for a place before it is refused as overloaded. Its deadline holds as
    /// well; [`Duration::MAX`] leaves it at that.
    pub wait: Duration,
    /// What happens while the store is out of reach.
    pub without_store: WithoutStore,
}

/// Where the places of a fleet's limits are.
#[derive(Clone)]
pub struct FleetStore {
    /// The store that all processes use.
    pub store: Arc<dyn Store>,
    /// The namespace of the fleet in it.
    pub namespace: Arc<str>,
    /// This process, unlike any other.
    pub instance: Arc<str>,
}

/// A limit whose places are leases in a store.
///
/// A holder that dies leaves its place to end by itself, after 10 s. One that can't reach the store
/// loses its place and keeps running, so for as long as that lasts more calls may run than the
/// limit says. Calls of one process wait in their order; between processes there is none.
pub struct FleetLimit {
    of: Arc<str>,
    at: FleetStore,
    places: Vec<Key>,
    rules: FleetRules,
    here: Arc<Semaphore>,
    /// Where to look first, and what makes a holder unlike the others of this process.
    looks: AtomicU64,
    is_cut_off: AtomicBool,
    keepers: TaskTracker,
}

/// The right to run, given back when dropped.
#[derive(Debug)]
pub struct FleetPlace {
    _here: OwnedSemaphorePermit,
    /// None where the store was out of reach.
    _kept: Option<DropGuard>,
}

impl FleetLimit {
    /// A limit for what `of` says: `tool:` or `server:` and a name.
    ///
    /// # Errors
    /// When the names can't be keys of a store.
    pub fn new(of: &str, at: FleetStore, rules: FleetRules) -> Result<Arc<Self>, InvalidKey> {
        let running = rules.running.clamp(1, MOST_PLACES);
        let place = |number: u16| {
            let number = number.to_string();
            Key::new([&*at.namespace, "limits", of, &number])
        };
        let places = (0..running).map(place).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            of: of.into(),
            at,
            places,
            rules,
            here: Arc::new(Semaphore::new(running.into())),
            looks: AtomicU64::new(0),
            is_cut_off: AtomicBool::new(false),
            keepers: TaskTracker::new(),
        }))
    }

    /// Waits for a place. `repeatable` says whether running the tool twice does no harm.
    ///
    /// # Errors
    /// Overloaded when none comes free in time, timed out at the deadline, cancelled when the asker
    /// gives up, unavailable when the store is out of reach and the rules want that; the tool did
    /// not run.
    ///
    /// # Cancellation
    /// A place that was being taken is free again after 10 s.
    pub async fn place(
        &self,
        context: &ToolContext,
        repeatable: bool,
    ) -> Result<FleetPlace, ToolFailure> {
        let (began, executed) = (Instant::now(), Executed::No);
        let patience = began.checked_add(self.rules.wait);
        let until = patience.map_or(context.deadline, |until| until.min(context.deadline));
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            place = timeout_at(until, self.any_place()) => match place {
                Ok(place) => place,
                Err(_) if until == context.deadline => {
                    Err(ToolFailure::TimedOut { after: until - began, executed, repeatable })
                }
                Err(_) => {
                    let (of, wait) = (self.of.replacen(':', " ", 1), self.rules.wait);
                    let message = format!("as many calls of {of} as may run do, for {wait:?}");
                    Err(ToolFailure::Overloaded { message })
                }
            },
        }
    }

    async fn any_place(&self) -> Result<FleetPlace, ToolFailure> {
        // It is never closed.
        let Ok(here) = self.here.clone().acquire_owned().await else {
            return Err(self.out_of_reach());
        };
        let mut pause = FIRST_PAUSE;
        loop {
            let look = timeout(ATTEMPT_TIMEOUT, self.look()).await;
            let late = || StoreError::Unavailable { reason: "no answer in time".to_owned() };
            match look.unwrap_or_else(|_| Err(late())) {
                Ok(Some(lease)) => {
                    if self.is_cut_off.swap(false, Ordering::Relaxed) {
                        info!(limit = &*self.of, "the store is back; the limit holds for all");
                    }
                    return Ok(FleetPlace { _here: here, _kept: Some(self.keep(lease)) });
                }
                Ok(None) => sleep(pause).await,
                Err(error) => {
                    if !self.is_cut_off.swap(true, Ordering::Relaxed) {
                        let then = self.rules.without_store;
                        warn!(limit = &*self.of, %error, ?then, "a limit's store is out of reach");
                    }
                    return match self.rules.without_store {
                        WithoutStore::Local => Ok(FleetPlace { _here: here, _kept: None }),
                        WithoutStore::Refuse => Err(self.out_of_reach()),
                    };
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Looks at each place once.
    async fn look(&self) -> Result<Option<Lease>, StoreError> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}/{look}", self.at.instance);
        let first = usize::try_from(look).unwrap_or(0) % self.places.len();
        for key in self.places[first..].iter().chain(&self.places[..first]) {
            match Lease::acquire(self.at.store.clone(), key.clone(), &owner, TTL).await {
                Ok(lease) => return Ok(Some(lease)),
                Err(LeaseError::HeldBy { .. } | LeaseError::Lost { .. }) => {}
                Err(LeaseError::Store(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Keeps a place until the guard is dropped.
    fn keep(&self, lease: Lease) -> DropGuard {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        self.keepers.spawn(async move {
            let key = lease.key().clone();
            match lease.keep_alive(GIVE_UP, &stopped).await {
                // What can't be given back ends by itself.
                Some(lease) => drop(timeout(ATTEMPT_TIMEOUT, lease.release()).await),
                None => warn!(place = %key, "lost a place among calls that run at once"),
            }
        });
        stop.drop_guard()
    }

    fn out_of_reach(&self) -> ToolFailure {
        let of = self.of.replacen(':', " ", 1);
        let message = format!("the record of running calls of {of} is out of reach");
        ToolFailure::Unavailable { message, executed: Executed::No }
    }
}

impl std::fmt::Debug for FleetLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetLimit")
            .field("of", &self.of)
            .field("rules", &self.rules)
            .field("held", &self.keepers.len())
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

    struct Stage {
        store: Arc<MemoryStore>,
        clock: ManualClock,
    }

    impl Stage {
        fn set() -> Self {
            let clock = ManualClock::new();
            Self { store: Arc::new(MemoryStore::new(Clock::from(&clock))), clock }
        }

        fn process(&self, instance: &str, without_store: WithoutStore) -> Arc<FleetLimit> {
            self.waiting(instance, without_store, Duration::from_secs(5))
        }

        fn waiting(
            &self,
            instance: &str,
            without_store: WithoutStore,
            wait: Duration,
        ) -> Arc<FleetLimit> {
            let at = FleetStore {
                store: self.store.clone(),
                namespace: "rockbot".into(),
                instance: instance.into(),
            };
            let rules = FleetRules { running: 2, wait, without_store };
            FleetLimit::new("tool:search", at, rules).unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn processes_share_the_places_and_one_that_is_given_back_is_somebody_elses() {
        let stage = Stage::set();
        let one = stage.process("one", WithoutStore::Local);
        let two = stage.process("two", WithoutStore::Local);
        let context = context("search");
        let first = one.place(&context, false).await.unwrap();
        let _second = two.place(&context, false).await.unwrap();
        let refused = two.place(&context, false).await.expect_err("both places are taken");
        assert_eq!((refused.code(), refused.executed()), (ToolErrorCode::Overloaded, Executed::No));
        let mut waiting = Box::pin(two.place(&context, false));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bound_a_call_waits_until_its_deadline() {
        let stage = Stage::set();
        let one = stage.waiting("one", WithoutStore::Local, Duration::MAX);
        let mut context = context("search");
        context.deadline = Instant::now() + Duration::from_secs(600);
        let held =
            [one.place(&context, false).await.unwrap(), one.place(&context, false).await.unwrap()];
        let late = one.place(&context, false).await.expect_err("both places are taken");
        assert_eq!(late.code(), ToolErrorCode::Timeout);
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_of_a_holder_that_died_comes_back() {
        let stage = Stage::set();
        let context = context("search");
        let key = |number: &str| Key::new(["rockbot", "limits", "tool:search", number]).unwrap();
        for number in ["0", "1"] {
            // Nobody renews it.
            Lease::acquire(stage.store.clone(), key(number), "dead", TTL).await.unwrap();
        }
        let one = stage.process("one", WithoutStore::Local);
        one.place(&context, false).await.expect_err("both places are taken");
        stage.clock.advance(TTL);
        one.place(&context, false).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_store_the_limit_holds_in_each_process() {
        let stage = Stage::set();
        let context = context("search");
        let one = stage.process("one", WithoutStore::Local);
        let two = stage.process("two", WithoutStore::Local);
        stage.store.close().await;
        let _held = [
            one.place(&context, false).await.unwrap(),
            one.place(&context, false).await.unwrap(),
            two.place(&context, false).await.unwrap(),
        ];
        let refused = one.place(&context, false).await.expect_err("two run here");
        assert_eq!(refused.code(), ToolErrorCode::Overloaded);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_store_calls_are_refused_where_that_is_wanted() {
        let stage = Stage::set();
        let one = stage.process("one", WithoutStore::Refuse);
        stage.store.close().await;
        let refused = one.place(&context("search"), false).await.expect_err("refused");
        let said = (refused.code(), refused.executed(), refused.is_retryable());
        assert_eq!(said, (ToolErrorCode::Unavailable, Executed::No, true));
    }
}
