//! One holder at a time, for a while, on any store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    key::Key,
    port::{Entry, Expected, Store, StoreError, Version, Write, Written},
};

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
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        loop {
            let write = Write::new(self.key.clone(), self.owner.clone())
                .for_a_time(self.ttl)
                .expecting(Expected::Version(self.version));
            match self.store.write(write).await {
                Ok(Written::Done(version)) => {
                    self.version = version;
                    self.unconfirmed = false;
                    return Ok(());
                }
                // The renewal nobody confirmed was made after all.
                Ok(Written::Conflict(Some(entry)))
                    if self.unconfirmed && entry.value == self.owner =>
                {
                    self.version = entry.version;
                    self.unconfirmed = false;
                }
                Ok(Written::Conflict(_)) => return Err(LeaseError::Lost { key: self.key.clone() }),
                Err(error) => {
                    self.unconfirmed |= matches!(error, StoreError::Unconfirmed { .. });
                    return Err(error.into());
                }
            }
        }
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
