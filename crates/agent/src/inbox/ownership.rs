//! Leases on conversations: which process of an agent runs a conversation.
//!
//! A lease avoids work that is done twice. It is not what keeps a conversation consistent: its log accepts
//! the entries of one writer only.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rockbot_contracts::{AgentName, InstanceId, SessionId};
use rockbot_store::{LeaseError, Store, StoreError};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

use super::{
    leases::{Holder, LeaseFactory},
    renewal::{LeaseRenewer, OnLoss, RenewedLease},
};
use crate::delegation::{Claimed, TaskLeases};

/// The leases of this process on the conversations of an agent.
#[derive(Clone)]
pub(crate) struct Ownership {
    inner: Arc<Inner>,
}

struct Inner {
    leases: LeaseFactory,
    renewer: LeaseRenewer,
    slots: Mutex<HashMap<SessionId, Slot>>,
    releases: TaskTracker,
}

/// A conversation that messages of this process need.
#[derive(Default)]
struct Slot {
    holds: usize,
    lease: SharedLease,
}

/// The lease on a conversation, if it is acquired. Its lock is fair: claims are granted in order.
type SharedLease = Arc<AsyncMutex<Option<RenewedLease>>>;

/// The result of a claim.
pub(crate) enum Claim {
    /// This process runs the conversation.
    Owned(ConversationHold, ClaimOrder),
    /// Another process does.
    Held(Holder),
}

/// Delays later claims on the conversation until it is dropped.
pub(crate) type ClaimOrder = OwnedMutexGuard<Option<RenewedLease>>;

impl Ownership {
    /// Creates the leases of the process `owner`, which needs a Tokio runtime. `on_loss` is called for a conversation that another
    /// process has taken.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        agent: AgentName,
        owner: InstanceId,
        ttl: Duration,
        on_loss: OnLoss,
    ) -> Self {
        let leases = LeaseFactory::new(store, agent, owner, ttl);
        let renewer = LeaseRenewer::start(leases.clone(), on_loss);
        let (slots, releases) = (Mutex::default(), TaskTracker::new());
        Self { inner: Arc::new(Inner { leases, renewer, slots, releases }) }
    }

    /// Claims a conversation for this process.
    ///
    /// # Errors
    /// When the store fails or does not respond in time.
    ///
    /// # Cancellation
    /// A lease that was just acquired expires.
    pub(crate) async fn claim(&self, session: &SessionId) -> Result<Claim, StoreError> {
        self.claim_from(session, None).await
    }

    /// Claims a conversation from a process that is known to be dead.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub(crate) async fn take_over(
        &self,
        session: &SessionId,
        dead: &Holder,
    ) -> Result<Claim, StoreError> {
        self.claim_from(session, Some(dead)).await
    }

    async fn claim_from(
        &self,
        session: &SessionId,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        let (hold, lease) = self.hold(session);
        let mut order = lease.lock_owned().await;
        match order.as_ref() {
            Some(lease) if lease.is_held() => return Ok(Claim::Owned(hold, order)),
            Some(lease) if lease.is_renewing() => {
                let reason =
                    "the lease on the conversation expired; it is being renewed".to_owned();
                return Err(StoreError::Unavailable { reason });
            }
            _ => {}
        }
        match self.inner.leases.acquire(session, dead).await {
            Ok(lease) => {
                *order = Some(self.inner.renewer.add(lease, session.clone()));
                Ok(Claim::Owned(hold, order))
            }
            Err(LeaseError::HeldBy { owner, version: Some(version), .. }) => {
                // A holder with an invalid name cannot be reached; its lease expires.
                let instance = InstanceId::new(owner).unwrap_or_else(|_| InstanceId::generate());
                Ok(Claim::Held(Holder { instance, version }))
            }
            Err(LeaseError::HeldBy { .. } | LeaseError::Lost { .. }) => {
                let reason = "the lease on the conversation changed; try again".to_owned();
                Err(StoreError::Unavailable { reason })
            }
            Err(LeaseError::Store(error)) => Err(error),
        }
    }

    /// Returns whether messages of this process need the conversation.
    fn is_used(&self, session: &SessionId) -> bool {
        self.inner.slots.lock().contains_key(session)
    }

    /// Returns whether `holder` still has the lease.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn is_holder(
        &self,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<bool, StoreError> {
        self.inner.leases.is_holder(session, holder).await
    }

    /// Returns whether `holder` renews its lease; waits until its last renewal is older than the interval between
    /// renewals. An earlier incarnation of this process does not, and is not waited for.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn is_renewed(
        &self,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<bool, StoreError> {
        if self.inner.leases.is_predecessor(holder) {
            return Ok(false);
        }
        self.inner.leases.is_renewed(session, holder).await
    }

    /// Returns those of `sessions` that no process holds.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn unheld(
        &self,
        sessions: Vec<SessionId>,
    ) -> Result<Vec<SessionId>, StoreError> {
        let held = self.inner.leases.held().await?;
        let is_free = |session: &SessionId| {
            let key = self.inner.leases.key(session);
            !self.is_used(session) && key.is_ok_and(|key| !held.contains(&key))
        };
        Ok(sessions.into_iter().filter(is_free).collect())
    }

    /// Waits until the released leases are free, each for a bounded time.
    pub(crate) async fn released(&self) {
        self.inner.releases.close();
        self.inner.releases.wait().await;
    }

    fn hold(&self, session: &SessionId) -> (ConversationHold, SharedLease) {
        let mut slots = self.inner.slots.lock();
        let slot = slots.entry(session.clone()).or_default();
        slot.holds += 1;
        let hold = ConversationHold { inner: self.inner.clone(), session: Some(session.clone()) };
        (hold, slot.lease.clone())
    }
}

impl TaskLeases for Ownership {
    fn claim<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move { self.claim_from(session, None).await.map(Claimed::from) })
    }
}

/// The leases of a process that never searches for work without a process: its claim takes the conversation from
/// a process that died just now.
pub(super) struct UnsearchedLeases(pub(super) Ownership);

impl TaskLeases for UnsearchedLeases {
    fn claim<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let Self(ownership) = self;
            let claim = match ownership.claim(session).await? {
                Claim::Held(holder) if ownership.is_renewed(session, &holder).await? => {
                    // Unless it was released meanwhile.
                    ownership.claim(session).await?
                }
                Claim::Held(holder) => ownership.take_over(session, &holder).await?,
                owned => owned,
            };
            Ok(claim.into())
        })
    }
}

impl From<Claim> for Claimed {
    fn from(claim: Claim) -> Self {
        match claim {
            // Turns of delegated work are in no order.
            Claim::Owned(hold, _order) => Self::Owned(Box::new(hold)),
            Claim::Held(_) => Self::Held,
        }
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conversations = self.inner.slots.lock().len();
        f.debug_struct("Ownership").field("conversations", &conversations).finish_non_exhaustive()
    }
}

/// Keeps the lease on a conversation. When the last one of a process is dropped, the lease is released.
pub(crate) struct ConversationHold {
    inner: Arc<Inner>,
    /// `None` once it is released.
    session: Option<SessionId>,
}

impl ConversationHold {
    /// Ends the hold, and waits until the lease is free if it was the last one.
    pub(crate) async fn release(mut self) {
        if let Some(release) = self.end() {
            // It ends within the time of an attempt, and does not panic.
            let _ = release.await;
        }
    }

    fn end(&mut self) -> Option<JoinHandle<()>> {
        let session = self.session.take()?;
        let mut slots = self.inner.slots.lock();
        let slot = slots.get_mut(&session)?;
        slot.holds -= 1;
        if slot.holds > 0 {
            return None;
        }
        let lease = slot.lease.clone();
        drop(slots);
        // Without a runtime, the process is ending; the lease expires.
        let runtime = Handle::try_current().ok()?;
        let release = release(self.inner.clone(), session, lease);
        Some(self.inner.releases.spawn_on(release, &runtime))
    }
}

impl Drop for ConversationHold {
    fn drop(&mut self) {
        self.end();
    }
}

/// Releases the lease of a conversation, unless it is claimed again.
async fn release(inner: Arc<Inner>, session: SessionId, lease: SharedLease) {
    // Later claims wait until the lease is free.
    let mut lease = lease.lock().await;
    let is_unused =
        |slots: &HashMap<_, Slot>| slots.get(&session).is_some_and(|slot| slot.holds == 0);
    if !is_unused(&inner.slots.lock()) {
        return;
    }
    if let Some(lease) = lease.take() {
        lease.release().await;
    }
    let mut slots = inner.slots.lock();
    if is_unused(&slots) {
        slots.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rockbot_store::{Clock, ManualClock, MemoryStore};
    use tokio::time::{Instant, sleep};

    use super::*;

    const TTL: Duration = Duration::from_secs(2);

    fn ownership(store: &Arc<MemoryStore>, owner: &str) -> Ownership {
        ownership_with(store, owner, Arc::new(|_| ()))
    }

    fn ownership_with(store: &Arc<MemoryStore>, owner: &str, on_loss: OnLoss) -> Ownership {
        let agent = AgentName::new("tester").unwrap();
        Ownership::new(store.clone(), agent, InstanceId::new(owner).unwrap(), TTL, on_loss)
    }

    fn store() -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new(Clock::System))
    }

    fn session(id: &str) -> SessionId {
        SessionId::new(id).unwrap()
    }

    #[track_caller]
    fn owned(claim: Claim) -> (ConversationHold, ClaimOrder) {
        match claim {
            Claim::Owned(hold, order) => (hold, order),
            Claim::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    #[track_caller]
    fn held(claim: Claim) -> Holder {
        match claim {
            Claim::Held(holder) => holder,
            Claim::Owned(..) => panic!("not held"),
        }
    }

    #[tokio::test]
    async fn conversation_has_one_owner_until_its_last_hold_is_released() {
        let (store, id) = (store(), session("s"));
        let (one, two) = (ownership(&store, "one"), ownership(&store, "two"));
        let (first, order) = owned(one.claim(&id).await.unwrap());
        drop(order);
        let (second, order) = owned(one.claim(&id).await.unwrap());
        drop(order);
        let holder = held(two.claim(&id).await.unwrap());
        assert_eq!(holder.instance.as_str(), "one");
        assert!(two.is_holder(&id, &holder).await.unwrap());
        first.release().await;
        held(two.claim(&id).await.unwrap());
        second.release().await;
        assert!(!two.is_holder(&id, &holder).await.unwrap());
        owned(two.claim(&id).await.unwrap());
        assert!(one.inner.slots.lock().is_empty(), "nothing is kept for a released conversation");
    }

    #[tokio::test]
    async fn claims_on_a_conversation_are_granted_in_order() {
        let (store, id) = (store(), session("s"));
        let one = ownership(&store, "one");
        let (_hold, order) = owned(one.claim(&id).await.unwrap());
        let claimed = Arc::new(AtomicBool::new(false));
        let later = tokio::spawn({
            let (one, id, claimed) = (one.clone(), id.clone(), claimed.clone());
            async move {
                owned(one.claim(&id).await.unwrap());
                claimed.store(true, Ordering::SeqCst);
            }
        });
        // Another conversation is not affected.
        owned(one.claim(&session("t")).await.unwrap());
        assert!(!claimed.load(Ordering::SeqCst));
        drop(order);
        later.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn live_holder_is_not_taken_for_dead() {
        let (store, id) = (store(), session("s"));
        let (one, two) = (ownership(&store, "one"), ownership(&store, "two"));
        let (hold, order) = owned(one.claim(&id).await.unwrap());
        drop(order);
        let holder = held(two.claim(&id).await.unwrap());
        assert!(two.is_renewed(&id, &holder).await.unwrap());
        let holder = held(two.claim(&id).await.unwrap());
        // A process that is killed renews nothing and releases nothing.
        let lease = one.inner.slots.lock().get(&id).unwrap().lease.clone();
        lease.lock().await.take();
        assert!(!two.is_renewed(&id, &holder).await.unwrap());
        let (_taken, order) = owned(two.take_over(&id, &holder).await.unwrap());
        drop(order);
        held(one.claim(&id).await.unwrap());
        hold.release().await;
        held(one.claim(&id).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn holder_that_did_not_renew_for_long_has_one_interval_left() {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let (one, two) = (ownership(&store, "one"), ownership(&store, "two"));
        let id = session("s");
        let (_hold, order) = owned(one.claim(&id).await.unwrap());
        drop(order);
        let holder = held(two.claim(&id).await.unwrap());
        let lease = one.inner.slots.lock().get(&id).unwrap().lease.clone();
        lease.lock().await.take();
        clock.advance(TTL / 2);
        let start = Instant::now();
        assert!(!two.is_renewed(&id, &holder).await.unwrap());
        assert_eq!(start.elapsed(), two.inner.leases.renewal().interval);
        owned(two.take_over(&id, &holder).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn restarted_process_does_not_wait_for_its_predecessor() {
        let (store, id) = (store(), session("s"));
        let before = ownership(&store, "agent-1-a");
        let (_hold, order) = owned(before.claim(&id).await.unwrap());
        drop(order);
        let lease = before.inner.slots.lock().get(&id).unwrap().lease.clone();
        lease.lock().await.take();
        let elapsed = async |ownership: &Ownership, holder: &Holder| {
            let start = Instant::now();
            assert!(!ownership.is_renewed(&id, holder).await.unwrap());
            start.elapsed()
        };
        let restarted = ownership(&store, "agent-1-b");
        let holder = held(restarted.claim(&id).await.unwrap());
        assert_eq!(elapsed(&restarted, &holder).await, Duration::ZERO);
        for other in ["agent-2-b", "agent-1-x-b", "agent-b", "agent"] {
            let other = ownership(&store, other);
            assert!(elapsed(&other, &holder).await >= other.inner.leases.renewal().interval);
        }
        owned(restarted.take_over(&id, &holder).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn lost_lease_is_acquired_again_if_it_is_free() {
        let (store, id) = (store(), session("s"));
        let lost = Arc::new(AtomicBool::new(false));
        let one = ownership_with(&store, "one", {
            let lost = lost.clone();
            Arc::new(move |_| lost.store(true, Ordering::SeqCst))
        });
        let (_hold, order) = owned(one.claim(&id).await.unwrap());
        drop(order);
        let key = one.inner.leases.key(&id).unwrap();
        store.remove(&key, rockbot_store::Expected::Anything).await.unwrap();
        // It notices the loss at its next renewal, and acquires the lease at the one after.
        sleep(TTL).await;
        assert!(store.get(&key).await.unwrap().is_some());
        owned(one.claim(&id).await.unwrap());
        assert!(!lost.load(Ordering::SeqCst), "no other process has it");
        let two = ownership(&store, "two");
        store.remove(&key, rockbot_store::Expected::Anything).await.unwrap();
        let (_other, _order) = owned(two.claim(&id).await.unwrap());
        sleep(TTL).await;
        assert!(lost.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn only_conversations_without_a_holder_are_unheld() {
        let store = store();
        let (one, two) = (ownership(&store, "one"), ownership(&store, "two"));
        let long = session(&"%".repeat(250));
        let sessions = || vec![session("s"), session("t"), long.clone()];
        let (_hold, _order) = owned(one.claim(&session("s")).await.unwrap());
        assert_eq!(two.unheld(sessions()).await.unwrap(), [session("t"), long.clone()]);
        let (_hold, _order) = owned(two.claim(&session("t")).await.unwrap());
        assert_eq!(two.unheld(sessions()).await.unwrap(), std::slice::from_ref(&long));
        assert_eq!(one.unheld(sessions()).await.unwrap(), [long]);
    }
}
