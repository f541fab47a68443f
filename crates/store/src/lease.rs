//! One holder at a time, for a while, on any store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    clock::Timestamp,
    key::Key,
    port::{Entry, Expected, Store, StoreError, Version, Write, Written},
};

/// How often a lease that is kept is renewed.
const RENEWAL: Duration = Duration::from_secs(3);
/// The pause after a renewal that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long one attempt to have, renew or give back a lease may take, for whoever keeps one.
pub const ATTEMPT: Duration = Duration::from_secs(2);

/// Why a lease was not had, or not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else holds it.
    #[error("the lease {key} is held by {owner:?}")]
    HeldBy {
        /// Which lease.
        key: Key,
        /// Who holds it.
        owner: String,
        /// When it ends unless it is renewed, by the store's clock; never when `None`.
        until: Option<Timestamp>,
    },
    /// It ended before it was renewed. Stop what it protects; somebody else may have begun.
    #[error("the lease {key} was lost: it ended before it was renewed")]
    Lost {
        /// Which lease.
        key: Key,
    },
    /// The store failed. The lease may still be held until its time is over.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to do something alone, until its time is over.
///
/// It ends by itself when its holder is gone or can't reach the store. A holder that was stopped
/// for too long learns of it at the next renewal at the latest; until then only the
/// [`token`](Lease::token) keeps it from doing harm, so hand it to whatever the lease protects.
/// Dropping a lease leaves it to end by itself.
pub struct Lease {
    store: Arc<dyn Store>,
    key: Key,
    owner: Bytes,
    ttl: Duration,
    token: Version,
    version: Version,
    /// Whether a renewal was sent that may have been made.
    unconfirmed: bool,
}

impl Lease {
    /// Takes the lease for `ttl` if nobody holds it.
    ///
    /// `owner` names this holder and nobody else, also not another task of this process: asking
    /// again under the same name finds the lease held.
    ///
    /// # Errors
    /// [`LeaseError::HeldBy`] when it is held, [`LeaseError::Store`] when the store fails.
    pub async fn acquire(
        store: Arc<dyn Store>,
        key: Key,
        owner: &str,
        ttl: Duration,
    ) -> Result<Self, LeaseError> {
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        let write = Write::new(key.clone(), owner.clone());
        match store.write(write.for_a_time(ttl).expecting(Expected::Absent)).await? {
            Written::Done(version) => {
                let token = version;
                Ok(Self { store, key, owner, ttl, token, version, unconfirmed: false })
            }
            Written::Conflict(holder) => Err(LeaseError::HeldBy {
                key,
                until: holder.as_ref().and_then(|entry| entry.expires_at),
                owner: holder.map(|entry| owner_of(&entry)).unwrap_or_default(),
            }),
        }
    }

    /// Holds it for another `ttl` from now.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when it has ended, also if nobody took it since;
    /// [`LeaseError::Store`] when the store fails: renew again while there is time.
    ///
    /// # Cancellation
    /// It may have been renewed; the next renewal finds out.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        loop {
            let write = Write::new(self.key.clone(), self.owner.clone())
                .for_a_time(self.ttl)
                .expecting(Expected::Version(self.version));
            // Nor is it confirmed when the caller stops waiting.
            let in_doubt = std::mem::replace(&mut self.unconfirmed, true);
            match self.store.write(write).await {
                Ok(Written::Done(version)) => {
                    self.version = version;
                    self.unconfirmed = false;
                    return Ok(());
                }
                // The renewal nobody confirmed was made after all.
                Ok(Written::Conflict(Some(entry))) if in_doubt && entry.value == self.owner => {
                    self.version = entry.version;
                    self.unconfirmed = false;
                }
                Ok(Written::Conflict(_)) => {
                    self.unconfirmed = false;
                    return Err(LeaseError::Lost { key: self.key.clone() });
                }
                Err(error) => {
                    self.unconfirmed = in_doubt || matches!(error, StoreError::Unconfirmed { .. });
                    return Err(error.into());
                }
            }
        }
    }

    /// Keeps it until told to stop, renewing it every 3 s, and returns it then. None when it is lost:
    /// when it has ended, or could not be renewed for `give_up`. With less than its whole time
    /// something is left of the lease for what it protects to end.
    ///
    /// # Cancellation
    /// Leaves the lease to end by itself.
    pub async fn keep(mut self, give_up: Duration, stop: &CancellationToken) -> Option<Self> {
        let mut renewed = Instant::now();
        let mut pause = RENEWAL;
        while stop.run_until_cancelled(sleep(pause)).await.is_some() {
            let began = Instant::now();
            let attempt = (began + ATTEMPT).min(renewed + give_up);
            let renewal = timeout_at(attempt, self.renew()).await;
            let late = || StoreError::Unavailable { reason: "no answer in time".to_owned() };
            let Err(error) = renewal.unwrap_or_else(|_| Err(late().into())) else {
                renewed = began;
                pause = RENEWAL;
                continue;
            };
            warn!(lease = %self.key, %error, "cannot renew a lease");
            if matches!(error, LeaseError::Lost { .. }) || renewed.elapsed() >= give_up {
                return None;
            }
            pause = AFTER_FAILURE;
        }
        Some(self)
    }

    /// Gives it back, so that somebody else can have it at once. Returns whether it was still
    /// held.
    ///
    /// # Errors
    /// When the store fails; the lease then ends by itself.
    pub async fn release(self) -> Result<bool, StoreError> {
        self.store.remove(&self.key, Expected::Version(self.version)).await
    }

    /// The fencing token: larger than that of every earlier holder, and the same as long as this
    /// lease is renewed. What the lease protects refuses a token smaller than one it has seen.
    #[must_use]
    pub fn token(&self) -> Version {
        self.token
    }

    /// Which lease it is.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }
}

fn owner_of(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.value).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicBool, Ordering},
    };

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::{Clock, ManualClock, MemoryStore, Prefix};

    const TTL: Duration = Duration::from_secs(10);
    const GIVE_UP: Duration = Duration::from_secs(8);

    /// Writes, and says so only as long as it is not silent.
    struct Silenceable {
        store: MemoryStore,
        silent: AtomicBool,
    }

    impl Store for Silenceable {
        fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
            self.store.get(key)
        }

        fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
            Box::pin(async {
                let written = self.store.write(write).await;
                if self.silent.load(Ordering::Relaxed) { pending().await } else { written }
            })
        }

        fn remove<'a>(
            &'a self,
            key: &'a Key,
            expected: Expected,
        ) -> BoxFuture<'a, Result<bool, StoreError>> {
            self.store.remove(key, expected)
        }

        fn list<'a>(
            &'a self,
            prefix: &'a Prefix,
            after: Option<&'a Key>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
            self.store.list(prefix, after, limit)
        }

        fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
            self.store.sweep(limit)
        }

        fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
            self.store.now()
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            self.store.close()
        }
    }

    struct Stage {
        store: Arc<Silenceable>,
        clock: ManualClock,
        began: Instant,
        stop: CancellationToken,
        kept: tokio::task::JoinHandle<Option<Lease>>,
    }

    impl Stage {
        async fn with_a_kept_lease() -> Self {
            let clock = ManualClock::new();
            let store = MemoryStore::new(Clock::from(&clock));
            let store = Arc::new(Silenceable { store, silent: AtomicBool::new(false) });
            let lease = Lease::acquire(store.clone(), key(), "one", TTL).await.unwrap();
            let stop = CancellationToken::new();
            let stopped = stop.clone();
            let kept = tokio::spawn(async move { lease.keep(GIVE_UP, &stopped).await });
            Self { store, clock, began: Instant::now(), stop, kept }
        }

        /// Lets time go by, for the store as well.
        async fn pass(&self, seconds: u64) {
            for _ in 0..seconds {
                sleep(Duration::from_secs(1)).await;
                self.clock.advance(Duration::from_secs(1));
            }
        }

        async fn lost_after(self) -> Duration {
            assert!(self.kept.await.unwrap().is_none());
            self.began.elapsed()
        }
    }

    fn key() -> Key {
        Key::new(["lease"]).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_lease_outlives_its_time_and_is_there_to_be_given_back() {
        let stage = Stage::with_a_kept_lease().await;
        stage.pass(60).await;
        stage.stop.cancel();
        let lease = stage.kept.await.unwrap().expect("kept");
        assert!(lease.release().await.unwrap(), "it was still held");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_somebody_else_is_lost_at_the_next_renewal() {
        let stage = Stage::with_a_kept_lease().await;
        stage.clock.advance(TTL);
        Lease::acquire(stage.store.clone(), key(), "two", TTL).await.expect("its time is over");
        assert_eq!(stage.lost_after().await, RENEWAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_is_asked_again_until_it_is_time_to_give_up() {
        let stage = Stage::with_a_kept_lease().await;
        stage.store.close().await;
        assert_eq!(stage.lost_after().await, GIVE_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_says_nothing_is_not_waited_for_longer_than_that() {
        let stage = Stage::with_a_kept_lease().await;
        stage.store.silent.store(true, Ordering::Relaxed);
        assert_eq!(stage.lost_after().await, GIVE_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_was_made_in_silence_does_not_lose_the_lease() {
        let stage = Stage::with_a_kept_lease().await;
        stage.store.silent.store(true, Ordering::Relaxed);
        stage.pass(4).await;
        stage.store.silent.store(false, Ordering::Relaxed);
        stage.pass(20).await;
        stage.stop.cancel();
        assert!(stage.kept.await.unwrap().is_some());
    }
}
