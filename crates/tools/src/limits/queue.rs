//! Named FIFO queues of calls.

use std::{
    num::NonZeroU16,
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

/// Settings of a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRules {
    /// Concurrent calls, at least 1. Default: twice the number of cores, at most 64.
    pub running: usize,
    /// Waiting calls; further calls are rejected as overloaded. Default 1024.
    pub waiting: usize,
    /// Maximum time that a call waits before it is rejected as overloaded. Its deadline applies as
    /// well. Default 60 s.
    pub wait: Duration,
    /// Weight when a tool handler divides its capacity among queues and tools; the queue itself ignores it.
    /// Default: that of the MCP server of the tool, or 1.
    pub weight: Option<NonZeroU16>,
}

impl Default for QueueRules {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            running: (cores * 2).min(64),
            waiting: 1024,
            wait: Duration::from_secs(60),
            weight: None,
        }
    }
}

/// A FIFO queue of calls. A cancelled call leaves it at once.
#[derive(Debug)]
pub struct Queue {
    name: Arc<str>,
    rules: QueueRules,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Right to run, released when dropped.
#[derive(Debug)]
pub struct QueuePermit(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Queue {
    /// Creates a queue called `name`.
    #[must_use]
    pub fn new(name: &str, rules: QueueRules) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(rules.running.max(1)));
        Arc::new(Self { name: name.into(), rules, permits, waiting: AtomicUsize::new(0) })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its settings.
    #[must_use]
    pub fn rules(&self) -> QueueRules {
        self.rules
    }

    /// Returns the number of waiting calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a permit. `repeatable` is `true` if running the tool twice is harmless.
    ///
    /// # Errors
    /// Overloaded when too many calls wait or the wait is too long, timed out at the deadline,
    /// cancelled when the caller cancels. The tool did not run.
    ///
    /// # Cancellation
    /// The call leaves the queue.
    pub async fn acquire(
        &self,
        context: &ToolContext,
        repeatable: bool,
    ) -> Result<QueuePermit, ToolFailure> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(QueuePermit(permit));
        }
        let Some(_waiting) = self.start_waiting() else {
            let message = format!("queue {} is full; call again later", self.name);
            return Err(ToolFailure::Overloaded { message });
        };
        let (started, executed) = (Instant::now(), Executed::No);
        let until = context.deadline.min(started + self.rules.wait);
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            permit = timeout_at(until, self.permits.clone().acquire_owned()) => match permit {
                Ok(Ok(permit)) => Ok(QueuePermit(permit)),
                _ if until == context.deadline => {
                    Err(ToolFailure::TimedOut { after: until - started, executed, repeatable })
                }
                _ => {
                    let wait = self.rules.wait;
                    let message = format!("queue {} is busy for {wait:?}; call again later", self.name);
                    Err(ToolFailure::Overloaded { message })
                }
            },
        }
    }

    fn start_waiting(&self) -> Option<WaitingCall<'_>> {
        let limit = self.rules.waiting;
        let increment = |waiting| (waiting < limit).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).ok()?;
        Some(WaitingCall(self))
    }
}

/// Counts one waiting call until dropped.
struct WaitingCall<'a>(&'a Queue);

impl Drop for WaitingCall<'_> {
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
        Queue::new("slow", QueueRules { running: 1, waiting, wait, weight: None })
    }

    fn rejection(result: Result<QueuePermit, ToolFailure>) -> (ToolErrorCode, Executed) {
        let failure = result.expect_err("rejected");
        (failure.code(), failure.executed())
    }

    #[tokio::test(start_paused = true)]
    async fn queue_is_fifo_and_drops_cancelled_calls() {
        let queue = queue(2, 60 * SECOND);
        let context = context("echo");
        let running = queue.acquire(&context, false).await.unwrap();
        let mut first = Box::pin(queue.acquire(&context, false));
        let mut second = Box::pin(queue.acquire(&context, false));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let third = queue.acquire(&context, false).await;
        assert_eq!(rejection(third), (ToolErrorCode::Overloaded, Executed::No));
        drop(first);
        assert_eq!(queue.waiting(), 1, "the cancelled call left the queue");
        let mut third = Box::pin(queue.acquire(&context, false));
        assert!(third.as_mut().now_or_never().is_none());
        drop(running);
        assert!(third.as_mut().now_or_never().is_none(), "the second call is first in the queue");
        let second = second.now_or_never().expect("the permit is free").unwrap();
        drop(second);
        third.now_or_never().expect("the permit is free").unwrap();
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_call_leaves_queue_unexecuted() {
        let queue = queue(10, 60 * SECOND);
        let context = context("echo");
        let _running = queue.acquire(&context, false).await.unwrap();
        let (waiting, _) = tokio::join!(queue.acquire(&context, false), async {
            context.cancellation.cancel();
        });
        assert_eq!(rejection(waiting), (ToolErrorCode::Cancelled, Executed::No));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_at_queue_limit_or_deadline() {
        let queue = queue(10, 5 * SECOND);
        let mut context = context("echo");
        let _running = queue.acquire(&context, false).await.unwrap();
        let started = Instant::now();
        let late = queue.acquire(&context, false).await;
        assert_eq!(rejection(late), (ToolErrorCode::Overloaded, Executed::No));
        assert_eq!(started.elapsed(), 5 * SECOND);
        context.deadline = Instant::now() + SECOND;
        let late = queue.acquire(&context, false).await;
        assert_eq!(rejection(late), (ToolErrorCode::Timeout, Executed::No));
    }
}
