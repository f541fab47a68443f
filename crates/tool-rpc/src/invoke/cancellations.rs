//! Cancelled calls, remembered for copies of their requests that arrive later.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use rockbot_contracts::ToolCallId;
use tokio::time::Instant;

/// Maximum number of cancelled calls that are remembered; the oldest are forgotten first.
const MAX_CALLS: usize = 4096;

/// Time for which a call is remembered whose cancel message has no time budget.
const DEFAULT_TTL: Duration = Duration::from_secs(120);

/// Calls that were cancelled, each until its deadline.
///
/// A call stays cancelled for all copies of its request: the one that was answered may not be the last.
#[derive(Debug, Default)]
pub(super) struct Cancellations {
    until: HashMap<ToolCallId, Instant>,
    /// Ids of `until` in the order of their first cancel.
    order: VecDeque<ToolCallId>,
}

impl Cancellations {
    /// Remembers a call for `remaining`, the time until its deadline; if unknown, for 120 s.
    pub(super) fn insert(&mut self, id: ToolCallId, remaining: Option<Duration>) {
        let ttl = remaining.unwrap_or(DEFAULT_TTL).min(super::MAX_BUDGET);
        let until = Instant::now() + ttl;
        if let Some(known) = self.until.get_mut(&id) {
            *known = until.max(*known);
            return;
        }
        if self.order.len() >= MAX_CALLS {
            self.remove_expired();
        }
        if self.order.len() >= MAX_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
        self.order.push_back(id.clone());
        self.until.insert(id, until);
    }

    /// Returns whether the call was cancelled and its deadline has not passed.
    pub(super) fn contains(&self, id: &ToolCallId) -> bool {
        self.until.get(id).is_some_and(|until| *until > Instant::now())
    }

    fn remove_expired(&mut self) {
        let now = Instant::now();
        self.until.retain(|_, until| *until > now);
        self.order.retain(|id| self.until.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ToolCallId {
        ToolCallId::new(number.to_string()).expect("a valid id")
    }

    #[tokio::test(start_paused = true)]
    async fn call_stays_cancelled_until_its_deadline() {
        let mut cancelled = Cancellations::default();
        cancelled.insert(id(1), Some(Duration::from_secs(600)));
        cancelled.insert(id(2), None);
        // A second cancel with less time does not shorten the first.
        cancelled.insert(id(1), Some(Duration::ZERO));
        tokio::time::advance(Duration::from_secs(119)).await;
        assert!(cancelled.contains(&id(1)) && cancelled.contains(&id(2)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(cancelled.contains(&id(1)) && !cancelled.contains(&id(2)));
        tokio::time::advance(Duration::from_secs(480)).await;
        assert!(!cancelled.contains(&id(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn full_memory_forgets_expired_calls_first() {
        let mut cancelled = Cancellations::default();
        cancelled.insert(id(0), Some(Duration::from_secs(600)));
        cancelled.insert(id(1), Some(Duration::from_secs(1)));
        for number in 2..MAX_CALLS {
            cancelled.insert(id(number), Some(Duration::from_secs(600)));
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        cancelled.insert(id(MAX_CALLS), Some(Duration::from_secs(600)));
        assert!(cancelled.contains(&id(0)) && cancelled.contains(&id(MAX_CALLS)));
        cancelled.insert(id(MAX_CALLS + 1), Some(Duration::from_secs(600)));
        assert!(!cancelled.contains(&id(0)) && cancelled.contains(&id(2)));
        assert_eq!((cancelled.until.len(), cancelled.order.len()), (MAX_CALLS, MAX_CALLS));
    }
}
