//! Named queues: calls that wait for each other, first come, first served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::Executed;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{context::ToolContext, failure::ToolFailure};

/// Bounds of a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRules {
    /// Calls that run at once, at least 1. Default twice as many as there are cores, at most 64.
    pub running: usize,
    /// Calls that wait; one more is refused as overloaded. Default 1024.
    pub waiting: usize,
    /// How long a call waits before it is refused as overloaded. Its deadline holds as well.
    /// Default 60 s.
    pub wait: Duration,
}

impl Default for QueueRules {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { running: (cores * 2).min(64), waiting: 1024, wait: Duration::from_secs(60) }
    }
}

/// A queue of calls. First come, first served; who gives up leaves at once.
#[derive(Debug)]
pub struct Queue {
    name: Arc<str>,
    rules: QueueRules,
    room: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The right to run, given back when dropped.
#[derive(Debug)]
pub struct QueuePlace(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Queue {
    /// A queue called `name`.
    #[must_use]
    pub fn new(name: &str, rules: QueueRules) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(rules.running.max(1)));
        Arc::new(Self { name: name.into(), rules, room, waiting: AtomicUsize::new(0) })
    }

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a place. `repeatable` says whether running the tool twice does no harm.
    ///
    /// # Errors
    /// Overloaded when too many wait or the wait is too long, timed out at the deadline, cancelled
    /// when the asker gives up; the tool did not run.
    ///
    /// # Cancellation
    /// Leaves the queue.
    pub async fn place(
        &self,
        context: &ToolContext,
        repeatable: bool,
    ) -> Result<QueuePlace, ToolFailure> {
        if let Ok(place) = self.room.clone().try_acquire_owned() {
            return Ok(QueuePlace(place));
        }
        let Some(_waiter) = self.wait() else {
            let message = format!("too many calls wait in the queue {}", self.name);
            return Err(ToolFailure::Overloaded { message });
        };
        let (began, executed) = (Instant::now(), Executed::No);
        let until = context.deadline.min(began + self.rules.wait);
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            place = timeout_at(until, self.room.clone().acquire_owned()) => match place {
                Ok(Ok(place)) => Ok(QueuePlace(place)),
                _ if until == context.deadline => {
                    Err(ToolFailure::TimedOut { after: until - began, executed, repeatable })
                }
                _ => {
                    let wait = self.rules.wait;
                    let message = format!("no place in the queue {} for {wait:?}", self.name);
                    Err(ToolFailure::Overloaded { message })
                }
            },
        }
    }

    fn wait(&self) -> Option<Waiter<'_>> {
        let most = self.rules.waiting;
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Waiter(self))
    }
}

/// One of those who wait, until it is dropped.
struct Waiter<'a>(&'a Queue);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::ToolErrorCode;

    use super::*;
    use crate::testing::context;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue(waiting: usize, wait: Duration) -> Arc<Queue> {
        Queue::new("slow", QueueRules { running: 1, waiting, wait })
    }

    fn refused(ended: Result<QueuePlace, ToolFailure>) -> (ToolErrorCode, Executed) {
        let failure = ended.expect_err("refused");
        (failure.code(), failure.executed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_first_is_first_and_who_gives_up_leaves_at_once() {
        let queue = queue(2, 60 * SECOND);
        let context = context("echo");
        let running = queue.place(&context, false).await.unwrap();
        let mut first = Box::pin(queue.place(&context, false));
        let mut second = Box::pin(queue.place(&context, false));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let third = queue.place(&context, false).await;
        assert_eq!(refused(third), (ToolErrorCode::Overloaded, Executed::No));
        drop(first);
        assert_eq!(queue.waiting(), 1, "its place is free");
        let mut third = Box::pin(queue.place(&context, false));
        assert!(third.as_mut().now_or_never().is_none());
        drop(running);
        assert!(third.as_mut().now_or_never().is_none(), "the second came before");
        let second = second.now_or_never().expect("its turn").unwrap();
        drop(second);
        third.now_or_never().expect("its turn").unwrap();
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_waiter_leaves_and_did_not_run() {
        let queue = queue(10, 60 * SECOND);
        let context = context("echo");
        let _running = queue.place(&context, false).await.unwrap();
        let (waiting, _) = tokio::join!(queue.place(&context, false), async {
            context.cancellation.cancel();
        });
        assert_eq!(refused(waiting), (ToolErrorCode::Cancelled, Executed::No));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_queue_or_the_deadline_allows() {
        let queue = queue(10, 5 * SECOND);
        let mut context = context("echo");
        let _running = queue.place(&context, false).await.unwrap();
        let began = Instant::now();
        let late = queue.place(&context, false).await;
        assert_eq!(refused(late), (ToolErrorCode::Overloaded, Executed::No));
        assert_eq!(began.elapsed(), 5 * SECOND);
        context.deadline = Instant::now() + SECOND;
        let late = queue.place(&context, false).await;
        assert_eq!(refused(late), (ToolErrorCode::Timeout, Executed::No));
    }
}
