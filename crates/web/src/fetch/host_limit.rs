//! Limits of concurrent requests.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Concurrent pages of a host.
const PER_HOST: usize = 2;
/// Concurrent pages in all.
const IN_ALL: usize = 16;

/// The right to read a page of a host.
#[derive(Debug)]
pub(super) struct HostPermit {
    _host: OwnedSemaphorePermit,
    _any: OwnedSemaphorePermit,
}

/// Limits of concurrent requests, in all and to one host.
#[derive(Debug)]
pub(super) struct HostLimit {
    any: Arc<Semaphore>,
    /// Hosts in use. At most as many as there are callers.
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for HostLimit {
    fn default() -> Self {
        Self { any: Arc::new(Semaphore::new(IN_ALL)), hosts: Mutex::default() }
    }
}

impl HostLimit {
    /// Waits for a permit. Returns `None` at the deadline.
    pub(super) async fn acquire(&self, host: &str, deadline: Instant) -> Option<HostPermit> {
        let permits = self.host(host);
        let both = async {
            // First the host's: a caller that waits for a slow host takes nothing from the others.
            let host = permits.acquire_owned().await.ok()?;
            let any = self.any.clone().acquire_owned().await.ok()?;
            Some(HostPermit { _host: host, _any: any })
        };
        timeout_at(deadline, both).await.ok().flatten()
    }

    fn host(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock();
        // A permit keeps its semaphore.
        hosts.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = hosts.entry(host.to_owned());
        permits.or_insert_with(|| Arc::new(Semaphore::new(PER_HOST))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn host_and_total_are_limited() {
        let limit = HostLimit::default();
        let deadline = || Instant::now() + Duration::from_secs(1);
        let first = limit.acquire("a", deadline()).await.unwrap();
        let _second = limit.acquire("a", deadline()).await.unwrap();
        assert!(limit.acquire("a", deadline()).await.is_none());
        drop(first);
        let _third = limit.acquire("a", deadline()).await.unwrap();
        let mut others = Vec::new();
        for host in 0..14 {
            others.push(limit.acquire(&host.to_string(), deadline()).await.unwrap());
        }
        assert!(limit.acquire("z", deadline()).await.is_none());
        others.clear();
        assert!(limit.acquire("z", deadline()).await.is_some());
        assert!(limit.hosts.lock().len() <= 2);
    }
}
