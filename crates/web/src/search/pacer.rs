//! Pacing of requests: at most the announced rate, first come, first served.
//!
//! A search holds a permit while it waits for its first request, and not while the provider works on it: a
//! slow provider does not lower the rate. There are as many permits as requests in a second, so at one
//! request per second at most one search is ahead of another that is refused and sends again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::{Instant, sleep_until},
};

use super::rate_limits::Window;

/// Maximum number of searches that wait for their time at once.
const MAX_PERMITS: usize = 64;
/// Requests are spaced by this much more than the rate requires, in percent: requests that are sent a
/// second apart may arrive less than a second apart.
const MARGIN_PERCENT: u32 = 5;
/// Longest interval that is learned.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Paces the requests of one provider in one process.
pub(super) struct Pacer {
    pace: Mutex<Pace>,
    /// One for each search that may wait for its time.
    permits: Semaphore,
    /// Serves the holders of permits in the order in which they wait.
    line: AsyncMutex<()>,
}

struct Pace {
    interval: Duration,
    /// Earliest time of the next request.
    next: Instant,
    /// Searches that wait for their first request.
    waiting: u32,
    /// Number of permits that exist.
    permits: usize,
}

/// The wait would be longer than permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitTooLong {
    /// The expected wait.
    pub(super) expected: Duration,
}

/// Permission to send the requests of one search, one after the other.
pub(super) struct Turn<'a> {
    pacer: &'a Pacer,
}

impl Pacer {
    /// Creates a pacer that permits `limit` requests in each `window`.
    pub(super) fn new(limit: u32, window: Duration) -> Self {
        let (interval, permits) = spacing(limit, window);
        let pace = Pace { interval, next: Instant::now(), waiting: 0, permits };
        Self { pace: Mutex::new(pace), permits: Semaphore::new(permits), line: AsyncMutex::new(()) }
    }

    /// Waits until a request may be sent.
    ///
    /// # Errors
    /// [`WaitTooLong`] if the expected wait exceeds `max_wait`, immediately.
    ///
    /// # Cancellation
    /// Dropping the future leaves the line.
    pub(super) async fn turn(&self, max_wait: Duration) -> Result<Turn<'_>, WaitTooLong> {
        let waiting = self.enter(max_wait)?;
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.ok();
        let turn = Turn { pacer: self };
        turn.next_request().await;
        drop((permit, waiting));
        Ok(turn)
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
        let (interval, permits) = spacing(rate.limit, rate.length);
        let mut pace = self.pace.lock();
        if interval < pace.interval {
            // The next request was scheduled at the lower rate.
            pace.next = pace.next.min(Instant::now() + interval);
        }
        pace.interval = interval;
        if permits > pace.permits {
            self.permits.add_permits(permits - pace.permits);
            pace.permits = permits;
        } else {
            pace.permits -= self.permits.forget_permits(pace.permits - permits);
        }
    }

    /// Delays all requests by at least `delay` from now on.
    pub(super) fn hold(&self, delay: Duration) {
        let mut pace = self.pace.lock();
        pace.next = pace.next.max(Instant::now() + delay);
    }
}

impl Turn<'_> {
    /// Waits until another request of the search may be sent.
    pub(super) async fn next_request(&self) {
        let _first = self.pacer.line.lock().await;
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

/// Returns the interval between requests, and the number of permits.
fn spacing(limit: u32, window: Duration) -> (Duration, usize) {
    let interval = window / limit.max(1);
    let interval = interval.saturating_add(interval.saturating_mul(MARGIN_PERCENT) / 100);
    let a_second = window.as_secs().max(1);
    let permits = usize::try_from(u64::from(limit) / a_second).unwrap_or(MAX_PERMITS);
    (interval.min(MAX_INTERVAL), permits.clamp(1, MAX_PERMITS))
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
                let _turn = pacer.turn(LONG).await.expect("a turn");
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
        let mut turns = Vec::new();
        for _ in 0..4 {
            // The requests of the earlier turns have no response yet.
            let turn = tokio::time::timeout(SECOND * 2, pacer.turn(LONG)).await;
            turns.push(turn.expect("within two seconds").expect("a turn"));
        }
        assert_eq!(start.elapsed().as_millis(), 3_150);
    }

    #[tokio::test(start_paused = true)]
    async fn long_line_is_refused_with_expected_wait() {
        let pacer = Pacer::new(1, SECOND);
        let first = pacer.turn(Duration::ZERO).await;
        assert!(first.is_ok());
        pacer.hold(Duration::from_secs(6));
        let refused = pacer.turn(Duration::from_secs(5)).await.err().expect("refused");
        assert_eq!(refused.expected, Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_wait_leaves_the_line() {
        let pacer = Pacer::new(1, SECOND);
        pacer.turn(LONG).await.expect("a turn");
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = pacer.turn(LONG) => panic!("a turn before its time"),
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(pacer.pace.lock().waiting, 0);
        assert!(pacer.turn(SECOND * 2).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn higher_rate_takes_effect_at_once() {
        let pacer = Pacer::new(1, SECOND);
        pacer.turn(LONG).await.expect("a turn");
        pacer.learn(&window(50));
        let start = Instant::now();
        for _ in 0..3 {
            pacer.turn(LONG).await.expect("a turn");
        }
        assert!(start.elapsed() < Duration::from_millis(70), "{:?}", start.elapsed());
        pacer.learn(&window(1));
        assert_eq!((pacer.permits.available_permits(), pacer.pace.lock().permits), (1, 1));
    }
}
