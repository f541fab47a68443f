//! Pacing of requests: at most the announced rate, first come, first served.
//!
//! A search holds a queue permit while it waits for its first request, and not while the provider processes
//! it: a slow provider does not lower the rate. There are as many queue permits as requests in a second, so
//! at one request per second at most one search is ahead of another whose request is rejected and resent.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::{Instant, sleep_until},
};

use super::rate_limits::Window;

/// Maximum number of searches in the queue.
const MAX_QUEUE_PERMITS: usize = 64;
/// Margin on the interval that the rate requires, in percent: requests that are sent a second apart may
/// arrive less than a second apart.
const MARGIN_PERCENT: u32 = 5;
/// Maximum interval between requests, whatever rate the provider announces.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Paces the requests of one provider in one process.
pub(super) struct Pacer {
    pace: Mutex<Pace>,
    /// One permit for each search that may be in the queue.
    queue_permits: Semaphore,
    /// Serves searches with a queue permit, and those that resend a request, in order of arrival.
    queue: AsyncMutex<()>,
}

struct Pace {
    interval: Duration,
    /// Earliest time of the next request.
    next: Instant,
    /// Searches that wait for their first request.
    waiting: u32,
    /// Number of queue permits, held or not.
    queue_permits: usize,
}

/// Error when the expected wait exceeds the permitted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitTooLong {
    /// The expected wait.
    pub(super) expected: Duration,
}

/// Permission to send the requests of one search, one after the other.
pub(super) struct SendPermit<'a> {
    pacer: &'a Pacer,
}

impl Pacer {
    /// Creates a pacer that permits `limit` requests in each `window`.
    pub(super) fn new(limit: u32, window: Duration) -> Self {
        let (interval, queue_permits) = spacing(limit, window);
        let pace = Pace { interval, next: Instant::now(), waiting: 0, queue_permits };
        Self {
            pace: Mutex::new(pace),
            queue_permits: Semaphore::new(queue_permits),
            queue: AsyncMutex::new(()),
        }
    }

    /// Waits until a request may be sent.
    ///
    /// # Errors
    /// [`WaitTooLong`] if the expected wait exceeds `max_wait`, immediately.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue.
    pub(super) async fn acquire(&self, max_wait: Duration) -> Result<SendPermit<'_>, WaitTooLong> {
        let waiting = self.enter(max_wait)?;
        // The semaphore is never closed.
        let queue_permit = self.queue_permits.acquire().await.ok();
        let permit = SendPermit { pacer: self };
        permit.next_request().await;
        drop((queue_permit, waiting));
        Ok(permit)
    }

    fn enter(&self, max_wait: Duration) -> Result<Waiting<'_>, WaitTooLong> {
        let mut pace = self.pace.lock();
        let until_next = pace.next.saturating_duration_since(Instant::now());
        let expected = until_next.saturating_add(pace.interval.saturating_mul(pace.waiting));
        if expected > max_wait {
            return Err(WaitTooLong { expected });
        }
        pace.waiting += 1;
        Ok(Waiting(self))
    }

    /// Adapts to a rate that the provider announced.
    pub(super) fn learn(&self, rate: &Window) {
        let (interval, queue_permits) = spacing(rate.limit, rate.length);
        let mut pace = self.pace.lock();
        if interval < pace.interval {
            // The next request was scheduled at the lower rate.
            pace.next = pace.next.min(Instant::now() + interval);
        }
        pace.interval = interval;
        if queue_permits > pace.queue_permits {
            self.queue_permits.add_permits(queue_permits - pace.queue_permits);
            pace.queue_permits = queue_permits;
        } else {
            pace.queue_permits -=
                self.queue_permits.forget_permits(pace.queue_permits - queue_permits);
        }
    }

    /// Delays all requests by at least `delay` from now on.
    pub(super) fn hold(&self, delay: Duration) {
        let mut pace = self.pace.lock();
        pace.next = pace.next.max(Instant::now() + delay);
    }
}

impl SendPermit<'_> {
    /// Waits until another request of the search may be sent.
    pub(super) async fn next_request(&self) {
        let _first = self.pacer.queue.lock().await;
        loop {
            let next = {
                let mut pace = self.pacer.pace.lock();
                let now = Instant::now();
                if pace.next <= now {
                    pace.next = now + pace.interval;
                    return;
                }
                pace.next
            };
            sleep_until(next).await;
        }
    }
}

/// Counts a waiting search until it is dropped.
struct Waiting<'a>(&'a Pacer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pace.lock().waiting -= 1;
    }
}

/// Returns the interval between requests, and the number of queue permits.
fn spacing(limit: u32, window: Duration) -> (Duration, usize) {
    let interval = window / limit.max(1);
    let interval = interval.saturating_add(interval.saturating_mul(MARGIN_PERCENT) / 100);
    let seconds = window.as_secs().max(1);
    let queue_permits = usize::try_from(u64::from(limit) / seconds).unwrap_or(MAX_QUEUE_PERMITS);
    (interval.min(MAX_INTERVAL), queue_permits.clamp(1, MAX_QUEUE_PERMITS))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(3_600);

    fn window(limit: u32) -> Window {
        Window { limit, length: SECOND, remaining: None, reset: None }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_keep_order_and_interval() {
        let pacer = Arc::new(Pacer::new(1, SECOND));
        let start = Instant::now();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..4_u32 {
            let (pacer, sent) = (pacer.clone(), sent.clone());
            tasks.spawn(async move {
                let _permit = pacer.acquire(LONG).await.expect("a permit");
                sent.lock().push((number, start.elapsed().as_millis()));
            });
            tokio::task::yield_now().await;
        }
        while tasks.join_next().await.is_some() {}
        assert_eq!(*sent.lock(), [(0, 0), (1, 1_050), (2, 2_100), (3, 3_150)]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_do_not_lower_the_rate() {
        let pacer = Pacer::new(1, SECOND);
        let start = Instant::now();
        let mut permits = Vec::new();
        for _ in 0..4 {
            // The requests of the earlier searches have no response yet.
            let permit = tokio::time::timeout(SECOND * 2, pacer.acquire(LONG)).await;
            permits.push(permit.expect("within two seconds").expect("a permit"));
        }
        assert_eq!(start.elapsed().as_millis(), 3_150);
    }

    #[tokio::test(start_paused = true)]
    async fn long_queue_is_refused_with_expected_wait() {
        let pacer = Pacer::new(1, SECOND);
        let first = pacer.acquire(Duration::ZERO).await;
        assert!(first.is_ok());
        pacer.hold(Duration::from_secs(6));
        let refused = pacer.acquire(Duration::from_secs(5)).await.err().expect("refused");
        assert_eq!(refused.expected, Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_wait_leaves_the_queue() {
        let pacer = Pacer::new(1, SECOND);
        pacer.acquire(LONG).await.expect("a permit");
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = pacer.acquire(LONG) => panic!("a permit before its time"),
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(pacer.pace.lock().waiting, 0);
        assert!(pacer.acquire(SECOND * 2).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn higher_rate_takes_effect_at_once() {
        let pacer = Pacer::new(1, SECOND);
        pacer.acquire(LONG).await.expect("a permit");
        pacer.learn(&window(50));
        let start = Instant::now();
        for _ in 0..3 {
            pacer.acquire(LONG).await.expect("a permit");
        }
        assert!(start.elapsed() < Duration::from_millis(70), "{:?}", start.elapsed());
        pacer.learn(&window(1));
        assert_eq!(
            (pacer.queue_permits.available_permits(), pacer.pace.lock().queue_permits),
            (1, 1)
        );
    }
}
