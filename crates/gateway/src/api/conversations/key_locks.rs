//! One request at a time for each idempotency key.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::records::Owner;

type LockKey = (Owner, String);
type Locks = Mutex<HashMap<LockKey, Arc<AsyncMutex<()>>>>;

/// The keys of the requests in progress. Clones share them.
#[derive(Clone, Default)]
pub(super) struct KeyLocks(Arc<Locks>);

/// The lock of a key. It is removed with its last holder.
pub(super) struct KeyLock {
    locks: Arc<Locks>,
    key: LockKey,
    lock: Arc<AsyncMutex<()>>,
}

impl KeyLocks {
    /// Returns the lock of an owner's key.
    pub(super) fn lock_of(&self, owner: &Owner, key: &str) -> KeyLock {
        let key = (owner.clone(), key.to_owned());
        let lock = self.0.lock().entry(key.clone()).or_default().clone();
        KeyLock { locks: self.0.clone(), key, lock }
    }
}

impl KeyLock {
    /// Waits until no other request with the key is in progress.
    pub(super) async fn acquire(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        // One is in the map and one is this one.
        if Arc::strong_count(&self.lock) <= 2 {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lock_is_removed_with_its_last_holder() {
        let locks = KeyLocks::default();
        let owner = Owner::new("ada");
        let (first, second) = (locks.lock_of(&owner, "k"), locks.lock_of(&owner, "k"));
        let guard = first.acquire().await;
        assert!(second.lock.try_lock().is_err());
        assert!(locks.lock_of(&owner, "other").lock.try_lock().is_ok());
        drop(guard);
        drop(first);
        assert_eq!(locks.0.lock().len(), 1);
        drop(second);
        assert!(locks.0.lock().is_empty());
    }
}
