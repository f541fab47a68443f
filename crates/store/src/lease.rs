//! Leases: time-limited exclusive locks on any store.

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

/// The timeout of one attempt to acquire, renew or release a lease.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of [`Lease::keep_alive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The interval between renewals. Default 3 s.
    pub interval: Duration,
    /// The delay after a failed renewal. Default 500 ms.
    pub retry_delay: Duration,
    /// The lease counts as lost when it could not be renewed for this long. Shorter than the time to live,
    /// it leaves time to stop the protected work.
    pub give_up: Duration,
}

impl Renewal {
    /// Creates a renewal with the default interval and delay.
    #[must_use]
    pub const fn new(give_up: Duration) -> Self {
        let (interval, retry_delay) = (Duration::from_secs(3), Duration::from_millis(500));
        Self { interval, retry_delay, give_up }
    }

    /// Sets the interval.
    #[must_use]
    pub const fn every(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets the delay after a failed renewal.
    #[must_use]
    pub const fn with_retry_delay(self, retry_delay: Duration) -> Self {
        Self { retry_delay, ..self }
    }
}

/// Why a lease was not acquired or renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another owner holds the lease.
    #[error("the lease {key} is held by {owner:?}")]
    HeldBy {
        /// The key of the lease.
        key: Key,
        /// The owner that holds it.
        owner: String,
        /// The expiry time without a renewal, by the store's clock; `None` if it does not expire.
        until: Option<Timestamp>,
        /// The version of the holder's last renewal, for [`Lease::take_over`]; `None` if the holder
        /// released the lease in the meantime.
        version: Option<Version>,
    },
    /// The lease expired before it was renewed. Stop the protected work, since another owner may have
    /// started.
    #[error("the lease {key} was lost: it expired before its renewal")]
    Lost {
        /// The key of the lease.
        key: Key,
    },
    /// The store failed. The lease may still be held until it expires.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A time-limited exclusive lock.
///
/// It expires when its holder dies or cannot reach the store. A holder that was suspended for too long
/// finds out at the next renewal; until then only the [`token`](Lease::token) protects against it, so pass
/// the token to the protected resource. A dropped lease expires.
pub struct Lease {
    store: Arc<dyn Store>,
    key: Key,
    owner: Bytes,
    ttl: Duration,
    token: Version,
    version: Version,
    /// Set while a renewal was sent but not confirmed.
    unconfirmed: bool,
}

impl Lease {
    /// Acquires a free lease for `ttl`.
    ///
    /// `owner` must be unique, also among the tasks of this process. A second call with the same owner
    /// finds the lease held.
    ///
    /// # Errors
    /// [`LeaseError::HeldBy`] when it is held, [`LeaseError::Store`] when the store fails.
    pub async fn acquire(
        store: Arc<dyn Store>,
        key: Key,
        owner: &str,
        ttl: Duration,
    ) -> Result<Self, LeaseError> {
        Self::write(store, key, owner, ttl, Expected::Absent).await
    }

    /// Takes a lease from a holder that is known to be dead, without waiting for its expiry. `version` is
    /// that of [`LeaseError::HeldBy`]: a holder that has renewed the lease since keeps it.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); [`LeaseError::HeldBy`] also when it was released, expired, or was
    /// renewed in the meantime.
    pub async fn take_over(
        store: Arc<dyn Store>,
        key: Key,
        owner: &str,
        ttl: Duration,
        version: Version,
    ) -> Result<Self, LeaseError> {
        Self::write(store, key, owner, ttl, Expected::Version(version)).await
    }

    async fn write(
        store: Arc<dyn Store>,
        key: Key,
        owner: &str,
        ttl: Duration,
        expected: Expected,
    ) -> Result<Self, LeaseError> {
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        let write = Write::new(key.clone(), owner.clone());
        match store.write(write.with_ttl(ttl).with_expected(expected)).await? {
            Written::Done(version) => {
                let token = version;
                Ok(Self { store, key, owner, ttl, token, version, unconfirmed: false })
            }
            Written::Conflict(holder) => Err(LeaseError::HeldBy {
                key,
                until: holder.as_ref().and_then(|entry| entry.expires_at),
                version: holder.as_ref().map(|entry| entry.version),
                owner: holder.map(|entry| owner_of(&entry)).unwrap_or_default(),
            }),
        }
    }

    /// Extends the lease to `ttl` from now.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when it has expired, also if it is still free; [`LeaseError::Store`] when the
    /// store fails: retry until the lease expires.
    ///
    /// # Cancellation
    /// The lease may have been renewed; the next renewal handles both cases.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        loop {
            let write = Write::new(self.key.clone(), self.owner.clone())
                .with_ttl(self.ttl)
                .with_expected(Expected::Version(self.version));
            // Stays set if the caller drops the future.
            let was_unconfirmed = std::mem::replace(&mut self.unconfirmed, true);
            match self.store.write(write).await {
                Ok(Written::Done(version)) => {
                    self.version = version;
                    self.unconfirmed = false;
                    return Ok(());
                }
                // The unconfirmed renewal had been made.
                Ok(Written::Conflict(Some(entry)))
                    if was_unconfirmed && entry.value == self.owner =>
                {
                    self.version = entry.version;
                    self.unconfirmed = false;
                }
                Ok(Written::Conflict(_)) => {
                    self.unconfirmed = false;
                    return Err(LeaseError::Lost { key: self.key.clone() });
                }
                Err(error) => {
                    self.unconfirmed =
                        was_unconfirmed || matches!(error, StoreError::Unconfirmed { .. });
                    return Err(error.into());
                }
            }
        }
    }

    /// Renews the lease until `stop` is cancelled, and returns it then.
    ///
    /// Returns `None` when the lease is lost: it has expired, or could not be renewed for
    /// [`Renewal::give_up`].
    ///
    /// # Cancellation
    /// The lease expires.
    pub async fn keep_alive(mut self, renewal: Renewal, stop: &CancellationToken) -> Option<Self> {
        let Renewal { interval, retry_delay, give_up } = renewal;
        let mut renewed = Instant::now();
        let mut delay = interval;
        while stop.run_until_cancelled(sleep(delay)).await.is_some() {
            let start = Instant::now();
            let deadline = (start + ATTEMPT_TIMEOUT).min(renewed + give_up);
            let attempt = timeout_at(deadline, self.renew()).await;
            let timeout = || StoreError::Unavailable { reason: "no response in time".to_owned() };
            let Err(error) = attempt.unwrap_or_else(|_| Err(timeout().into())) else {
                renewed = start;
                delay = interval;
                continue;
            };
            warn!(lease = %self.key, %error, "lease renewal failed");
            if matches!(error, LeaseError::Lost { .. }) || renewed.elapsed() >= give_up {
                return None;
            }
            delay = retry_delay;
        }
        Some(self)
    }

    /// Releases the lease, so that another owner can acquire it at once. Returns whether it was still held.
    ///
    /// # Errors
    /// When the store fails; the lease expires then.
    pub async fn release(self) -> Result<bool, StoreError> {
        self.store.remove(&self.key, Expected::Version(self.version)).await
    }

    /// Returns the fencing token: larger than that of every earlier holder, and unchanged by renewals. The
    /// protected resource must reject a token smaller than one it has seen.
    #[must_use]
    pub fn token(&self) -> Version {
        self.token
    }

    /// Returns the key.
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

    /// A store that makes writes, but does not confirm them while it is silent.
    struct SilentStore {
        store: MemoryStore,
        silent: AtomicBool,
    }

    impl Store for SilentStore {
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

    struct Fixture {
        store: Arc<SilentStore>,
        clock: ManualClock,
        start: Instant,
        stop: CancellationToken,
        renewal: tokio::task::JoinHandle<Option<Lease>>,
    }

    impl Fixture {
        /// Starts to renew a new lease.
        async fn start() -> Self {
            let clock = ManualClock::new();
            let store = MemoryStore::new(Clock::from(&clock));
            let store = Arc::new(SilentStore { store, silent: AtomicBool::new(false) });
            let lease = Lease::acquire(store.clone(), key(), "one", TTL).await.unwrap();
            let stop = CancellationToken::new();
            let stopped = stop.clone();
            let renewal =
                tokio::spawn(
                    async move { lease.keep_alive(Renewal::new(GIVE_UP), &stopped).await },
                );
            Self { store, clock, start: Instant::now(), stop, renewal }
        }

        /// Advances the time, also that of the store.
        async fn advance(&self, seconds: u64) {
            for _ in 0..seconds {
                sleep(Duration::from_secs(1)).await;
                self.clock.advance(Duration::from_secs(1));
            }
        }

        /// Returns the time after which the lease was lost.
        async fn lost_after(self) -> Duration {
            assert!(self.renewal.await.unwrap().is_none());
            self.start.elapsed()
        }
    }

    fn key() -> Key {
        Key::new(["lease"]).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn renewed_lease_outlives_its_ttl() {
        let fixture = Fixture::start().await;
        fixture.advance(60).await;
        fixture.stop.cancel();
        let lease = fixture.renewal.await.unwrap().expect("the lease");
        assert!(lease.release().await.unwrap(), "the lease was still held");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_lease_is_lost_at_next_renewal() {
        let fixture = Fixture::start().await;
        fixture.clock.advance(TTL);
        Lease::acquire(fixture.store.clone(), key(), "two", TTL).await.expect("it has expired");
        assert_eq!(fixture.lost_after().await, Renewal::new(GIVE_UP).interval);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_store_is_retried_until_give_up() {
        let fixture = Fixture::start().await;
        fixture.store.close().await;
        assert_eq!(fixture.lost_after().await, GIVE_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_store_loses_lease_at_give_up() {
        let fixture = Fixture::start().await;
        fixture.store.silent.store(true, Ordering::Relaxed);
        assert_eq!(fixture.lost_after().await, GIVE_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn unconfirmed_renewal_keeps_lease() {
        let fixture = Fixture::start().await;
        fixture.store.silent.store(true, Ordering::Relaxed);
        fixture.advance(4).await;
        fixture.store.silent.store(false, Ordering::Relaxed);
        fixture.advance(20).await;
        fixture.stop.cancel();
        assert!(fixture.renewal.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_interval_is_configurable() {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let ttl = Duration::from_secs(2);
        let lease = Lease::acquire(store.clone(), key(), "one", ttl).await.unwrap();
        clock.advance(ttl);
        let renewal = Renewal::new(ttl).every(Duration::from_millis(500));
        let start = Instant::now();
        assert!(lease.keep_alive(renewal, &CancellationToken::new()).await.is_none());
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test]
    async fn taken_lease_is_lost_to_its_holder() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let mut first = Lease::acquire(store.clone(), key(), "one", TTL).await.unwrap();
        let held = async |owner| match Lease::acquire(store.clone(), key(), owner, TTL).await {
            Err(LeaseError::HeldBy { version: Some(version), .. }) => version,
            _ => panic!("the lease is held"),
        };
        let stale = held("two").await;
        first.renew().await.unwrap();
        let late = Lease::take_over(store.clone(), key(), "two", TTL, stale).await;
        assert!(matches!(late, Err(LeaseError::HeldBy { .. })), "the holder lives");
        let current = held("two").await;
        let second = Lease::take_over(store.clone(), key(), "two", TTL, current).await.unwrap();
        assert!(second.token() > first.token());
        assert!(matches!(first.renew().await, Err(LeaseError::Lost { .. })));
    }
}
