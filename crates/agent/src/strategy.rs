//! Execution strategies for the tool calls of one answer.

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};

/// Maximum number of concurrent calls with any strategy.
pub const MAX_PARALLEL: usize = 64;

/// Execution of the tool calls of one answer, set per agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionStrategy {
    /// One at a time, for tools that share state.
    Sequential,
    /// All concurrently, up to [`MAX_PARALLEL`]. The default.
    #[default]
    Parallel,
    /// In batches of this size.
    Batched(usize),
}

/// Decision of the loop between two batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// Start the next batch.
    Continue,
    /// Skip the remaining calls, for example because of a new user message.
    Stop,
}

impl ExecutionStrategy {
    fn batch(self) -> usize {
        match self {
            Self::Sequential => 1,
            Self::Parallel => usize::MAX,
            Self::Batched(size) => size.max(1),
        }
    }

    /// Runs `calls` and returns their outcomes in the order of the calls; `None` for calls that were not
    /// started. `steer` is called before every batch but the first.
    pub async fn run<C, O, F>(
        self,
        calls: Vec<C>,
        run: impl Fn(C) -> F,
        mut steer: impl FnMut() -> Steering,
    ) -> Vec<Option<O>>
    where
        F: Future<Output = O>,
    {
        let total = calls.len();
        let mut outcomes = Vec::with_capacity(total);
        let mut calls = calls.into_iter();
        while outcomes.len() < total {
            if !outcomes.is_empty() && steer() == Steering::Stop {
                break;
            }
            let batch: Vec<F> = calls.by_ref().take(self.batch()).map(&run).collect();
            let finished = stream::iter(batch).buffered(MAX_PARALLEL).map(Some);
            outcomes.extend(finished.collect::<Vec<_>>().await);
        }
        outcomes.resize_with(total, || None);
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    async fn check(strategy: ExecutionStrategy, calls: u64, most_at_once: usize) {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let run = async |call: u64| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first call takes longest, so the order must come from the strategy.
            tokio::time::sleep(Duration::from_millis(100 - call)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            call
        };
        let outcomes = strategy.run((0..calls).collect(), run, || Steering::Continue).await;
        assert_eq!(outcomes, (0..calls).map(Some).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), most_at_once, "{strategy:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn strategy_keeps_order_and_bounds_concurrency() {
        check(ExecutionStrategy::Sequential, 5, 1).await;
        check(ExecutionStrategy::Parallel, 5, 5).await;
        check(ExecutionStrategy::Parallel, 100, MAX_PARALLEL).await;
        check(ExecutionStrategy::Batched(2), 5, 2).await;
        check(ExecutionStrategy::Batched(0), 3, 1).await;
        check(ExecutionStrategy::Parallel, 0, 0).await;
    }

    #[tokio::test]
    async fn stop_skips_remaining_batches() {
        let run = async |call: u32| call;
        let outcomes = ExecutionStrategy::Batched(2).run(vec![1, 2, 3], run, || Steering::Stop);
        assert_eq!(outcomes.await, [Some(1), Some(2), None]);
    }

    #[test]
    fn strategies_deserialize_by_name() {
        let read = |text| serde_json::from_str::<ExecutionStrategy>(text).unwrap();
        assert_eq!(read("\"sequential\""), ExecutionStrategy::Sequential);
        assert_eq!(read("{\"batched\": 3}"), ExecutionStrategy::Batched(3));
    }
}
