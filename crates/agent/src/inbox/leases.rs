//! Leases on conversations in the store: their keys, their holders, and how they are acquired.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, InstanceId, SessionId};
use rockbot_store::{
    Entry, Key, Lease, LeaseError, LeaseRenewal, MAX_PAGE_ENTRIES, Prefix, Store, StoreError,
    Version, lease::ATTEMPT_TIMEOUT,
};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// First segment of the leases' keys: `conversation-owners/<agent>/<session>`.
const FAMILY: &str = "conversation-owners";
/// Maximum number of leases that are listed.
const MAX_LISTED: usize = 20_000;

/// The process that runs a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) instance: InstanceId,
    pub(super) version: Version,
}

/// Acquires leases on conversations in the name of this process.
#[derive(Clone)]
pub(super) struct LeaseFactory {
    store: Arc<dyn Store>,
    agent: AgentName,
    owner: InstanceId,
    ttl: Duration,
}

impl LeaseFactory {
    pub(super) fn new(
        store: Arc<dyn Store>,
        agent: AgentName,
        owner: InstanceId,
        ttl: Duration,
    ) -> Self {
        Self { store, agent, owner, ttl }
    }

    /// Returns whether `holder` still has the lease.
    pub(super) async fn is_holder(
        &self,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<bool, StoreError> {
        let entry = self.store.get(&self.key(session)?).await?;
        Ok(entry.is_some_and(|entry| entry.value == holder.instance.as_str().as_bytes()))
    }

    /// Returns whether `holder` is an earlier incarnation of this process, which has ended then: the names of
    /// the processes of an agent are unique.
    pub(super) fn is_predecessor(&self, holder: &Holder) -> bool {
        let process = |incarnation: &InstanceId| {
            incarnation.as_str().rsplit_once('-').map(|(process, _)| process.to_owned())
        };
        let own = process(&self.owner);
        own.is_some() && own == process(&holder.instance)
    }

    /// Returns whether `holder` renews its lease. Waits until its last renewal is older than the interval
    /// between renewals, and half of it more; at least for one interval, because the holder may have been
    /// unable to renew it while the store was unavailable.
    pub(super) async fn is_renewed(
        &self,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<bool, StoreError> {
        let (key, interval) = (self.key(session)?, self.renewal().interval);
        let is_renewed = |entry: &Entry| entry.version != holder.version;
        let Some(entry) = self.store.get(&key).await?.filter(|entry| !is_renewed(entry)) else {
            return Ok(true);
        };
        let left = match entry.expires_at {
            Some(end) => end.since(self.store.now().await?),
            None => self.ttl,
        };
        let since_renewal = self.ttl.saturating_sub(left);
        let patience = interval + interval / 2;
        sleep(patience.saturating_sub(since_renewal).max(interval)).await;
        Ok(self.store.get(&key).await?.is_none_or(|entry| is_renewed(&entry)))
    }

    /// Returns the keys of the held leases, at most [`MAX_LISTED`].
    pub(super) async fn held(&self) -> Result<HashSet<Key>, StoreError> {
        let prefix = Prefix::new([FAMILY, self.agent.as_str()])?;
        let (mut held, mut after) = (HashSet::new(), None);
        while held.len() < MAX_LISTED {
            let page = self.store.list(&prefix, after.as_ref(), MAX_PAGE_ENTRIES).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            held.extend(page.into_iter().map(|(key, _)| key));
        }
        Ok(held)
    }

    /// Acquires the lease, or takes it from `dead`.
    pub(super) async fn acquire(
        &self,
        session: &SessionId,
        dead: Option<&Holder>,
    ) -> Result<Lease, LeaseError> {
        let attempt = self.attempt(session, dead.map(|holder| holder.version)).await;
        match attempt {
            // An attempt of this process whose confirmation was lost.
            Err(LeaseError::HeldBy { owner, version: Some(version), .. })
                if owner == self.owner.as_str() =>
            {
                debug!(%session, "unconfirmed lease adopted");
                self.attempt(session, Some(version)).await
            }
            // It expired or was released in the meantime.
            Err(LeaseError::HeldBy { version: None, .. }) => self.attempt(session, None).await,
            attempt => attempt,
        }
    }

    async fn attempt(
        &self,
        session: &SessionId,
        version: Option<Version>,
    ) -> Result<Lease, LeaseError> {
        let (store, key, owner) = (self.store.clone(), self.key(session)?, self.owner.as_str());
        let attempt = async {
            match version {
                Some(version) => Lease::take_over(store, key, owner, self.ttl, version).await,
                None => Lease::acquire(store, key, owner, self.ttl).await,
            }
        };
        let late = || StoreError::Unavailable {
            reason: format!("no response within {ATTEMPT_TIMEOUT:?}"),
        };
        timeout(ATTEMPT_TIMEOUT, attempt).await.unwrap_or_else(|_| Err(late().into()))
    }

    /// Returns the intervals at which a lease is renewed.
    pub(super) fn renewal(&self) -> LeaseRenewal {
        LeaseRenewal::from_ttl(self.ttl)
    }

    pub(super) fn key(&self, session: &SessionId) -> Result<Key, StoreError> {
        let key = Key::new([FAMILY, self.agent.as_str(), session.as_str()]);
        // A key that is too long is replaced by its hash.
        Ok(key.or_else(|_| {
            let hash = Sha256::digest(format!("{}/{session}", self.agent).as_bytes());
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            Key::new([FAMILY, hash.as_str()])
        })?)
    }
}
