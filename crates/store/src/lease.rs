//! Leases: time-limited exclusive locks on any store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    clock::Timestamp,
    key::Key,
    port::{
        Entry, Expected, Extension, MAX_EXTENSIONS, Store, StoreError, Version, Write, Written,
    },
};

/// The default interval of renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// The default delay after a failed renewal.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The timeout of one attempt to acquire, renew or release a lease.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// The intervals at which a lease is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRenewal {
    /// The delay before each renewal. Default: 3 s.
    pub interval: Duration,
    /// The delay after a failed renewal. Default: 500 ms.
    pub retry_delay: Duration,
    /// The timeout of one renewal. Default: 2 s.
    pub attempt_timeout: Duration,
    /// The time since the last renewal after which the lease counts as lost. One that is shorter than the
    /// time to live leaves time to stop the protected work.
    pub give_up: Duration,
}

impl LeaseRenewal {
    /// Creates the default intervals, for leases of about ten seconds.
    #[must_use]
    pub fn new(give_up: Duration) -> Self {
        Self {
            interval: RENEWAL_INTERVAL,
            retry_delay: RETRY_DELAY,
            attempt_timeout: ATTEMPT_TIMEOUT,
            give_up,
        }
    }

    /// Creates intervals in proportion to a time to live: for 2 s, a renewal each 500 ms, retries after
    /// 250 ms, a timeout of 1 s, and 1.5 s until the lease counts as lost.
    #[must_use]
    pub fn from_ttl(ttl: Duration) -> Self {
        Self {
            interval: ttl / 4,
            retry_delay: ttl / 8,
            attempt_timeout: ttl / 2,
            give_up: ttl * 3 / 4,
        }
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
                Ok(written) => {
                    if let Some(renewed) = self.renewed(written, was_unconfirmed) {
                        return renewed;
                    }
                }
                Err(error) => return Err(self.not_renewed(error, was_unconfirmed)),
            }
        }
    }

    /// Extends several leases to their time to live from now, with one change of the store. All must be of
    /// the same store and have the same time to live. Returns the outcomes in the order of `leases`.
    ///
    /// More than [`MAX_EXTENSIONS`] leases are extended with several changes, one after the other.
    ///
    /// # Errors
    /// For each lease as for [`renew`](Self::renew).
    ///
    /// # Cancellation
    /// As for [`renew`](Self::renew).
    pub async fn renew_all(leases: &mut [&mut Self]) -> Vec<Result<(), LeaseError>> {
        let mut outcomes = Vec::with_capacity(leases.len());
        for chunk in leases.chunks_mut(MAX_EXTENSIONS) {
            outcomes.extend(Self::renew_chunk(chunk).await);
        }
        outcomes
    }

    async fn renew_chunk(leases: &mut [&mut Self]) -> Vec<Result<(), LeaseError>> {
        let mut outcomes: Vec<Option<Result<(), LeaseError>>> =
            leases.iter().map(|_| None).collect();
        // The second pass renews those whose unconfirmed renewal had been made.
        for _ in 0..2 {
            let open: Vec<_> = leases
                .iter_mut()
                .zip(&mut outcomes)
                .filter(|(_, outcome)| outcome.is_none())
                .map(|(lease, outcome)| {
                    // Stays set if the caller drops the future.
                    let was_unconfirmed = std::mem::replace(&mut lease.unconfirmed, true);
                    (lease, outcome, was_unconfirmed)
                })
                .collect();
            let Some((first, ..)) = open.first() else { break };
            let (store, ttl) = (first.store.clone(), first.ttl);
            let extensions = open
                .iter()
                .map(|(lease, ..)| Extension { key: lease.key.clone(), version: lease.version });
            match store.extend(extensions.collect(), ttl).await {
                Ok(written) => {
                    for ((lease, outcome, was_unconfirmed), written) in
                        open.into_iter().zip(written)
                    {
                        *outcome = lease.renewed(written, was_unconfirmed);
                    }
                }
                Err(error) => {
                    for (lease, outcome, was_unconfirmed) in open {
                        *outcome = Some(Err(lease.not_renewed(error.clone(), was_unconfirmed)));
                    }
                }
            }
        }
        let lost = |lease: &&mut Self| Err(LeaseError::Lost { key: lease.key.clone() });
        leases
            .iter()
            .zip(outcomes)
            .map(|(lease, outcome)| outcome.unwrap_or_else(|| lost(lease)))
            .collect()
    }

    /// Applies the outcome of a renewal. Returns `None` if an earlier one, which was not confirmed, had been
    /// made: the lease is to be renewed again then.
    fn renewed(
        &mut self,
        written: Written,
        was_unconfirmed: bool,
    ) -> Option<Result<(), LeaseError>> {
        self.unconfirmed = false;
        match written {
            Written::Done(version) => {
                self.version = version;
                Some(Ok(()))
            }
            Written::Conflict(Some(entry)) if was_unconfirmed && entry.value == self.owner => {
                self.version = entry.version;
                None
            }
            Written::Conflict(_) => Some(Err(LeaseError::Lost { key: self.key.clone() })),
        }
    }

    fn not_renewed(&mut self, error: StoreError, was_unconfirmed: bool) -> LeaseError {
        self.unconfirmed = was_unconfirmed || matches!(error, StoreError::Unconfirmed { .. });
        error.into()
    }

    /// Renews the lease until `stop` is cancelled, and returns it then.
    ///
    /// Returns `None` when the lease is lost: it has expired, or could not be renewed for
    /// [`LeaseRenewal::give_up`].
    ///
    /// # Cancellation
    /// The lease expires.
    pub async fn keep_alive(self, give_up: Duration, stop: &CancellationToken) -> Option<Self> {
        self.keep_alive_at(LeaseRenewal::new(give_up), stop).await
    }

    /// Renews the lease at intervals until `stop` is cancelled, and returns it then.
    ///
    /// Returns `None` when the lease is lost: it has expired, or could not be renewed for
    /// [`LeaseRenewal::give_up`].
    ///
    /// # Cancellation
    /// The lease expires.
    pub async fn keep_alive_at(
        mut self,
        renewal: LeaseRenewal,
        stop: &CancellationToken,
    ) -> Option<Self> {
        let LeaseRenewal { interval, retry_delay, attempt_timeout, give_up } = renewal;
        let mut renewed = Instant::now();
        let mut delay = interval;
        while stop.run_until_cancelled(sleep(delay)).await.is_some() {
            let start = Instant::now();
            let deadline = (start + attempt_timeout).min(renewed + give_up);
            let renewal = timeout_at(deadline, self.renew()).await;
            let timeout = || StoreError::Unavailable { reason: "no response in time".to_owned() };
            let Err(error) = renewal.unwrap_or_else(|_| Err(timeout().into())) else {
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
mod tests;
