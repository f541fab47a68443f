//! Policies of calls: limits and caching.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use super::{breaker::Breaker, fleet::FleetLimit, queue::Queue, rate::Rate};
use crate::period::Period;

/// Policy of the calls of a tool. Absent settings impose no limit.
///
/// Limits are stateful and shared: clones of a policy count together.
#[derive(Debug, Clone, Default)]
pub struct CallPolicy {
    /// Time for which results are cached; no caching when off.
    pub cache: Option<Period>,
    /// Callers that share a cached result. `None`: the agent that called.
    pub cache_for: Option<Tenant>,
    /// Queue that calls wait in.
    pub queue: Option<Arc<Queue>>,
    /// Maximum duration. The caller's deadline applies as well. Zero removes the limit of a wider
    /// policy.
    pub timeout: Option<Duration>,
    /// Maximum time without an update; progress and partial results count as updates. Zero removes the
    /// limit of a wider policy.
    pub idle_timeout: Option<Duration>,
    /// Rate limit of each agent.
    pub rate: Option<Arc<Rate>>,
    /// Circuit breaker.
    pub breaker: Option<Arc<Breaker>>,
    /// Limit of concurrent calls in all processes on one store.
    pub fleet: Option<Arc<FleetLimit>>,
}

impl CallPolicy {
    /// Fills absent settings from `wider`.
    #[must_use]
    pub fn or(self, wider: &Self) -> Self {
        Self {
            cache: self.cache.or(wider.cache),
            cache_for: self.cache_for.or(wider.cache_for),
            queue: self.queue.or_else(|| wider.queue.clone()),
            timeout: self.timeout.or(wider.timeout),
            idle_timeout: self.idle_timeout.or(wider.idle_timeout),
            rate: self.rate.or_else(|| wider.rate.clone()),
            breaker: self.breaker.or_else(|| wider.breaker.clone()),
            fleet: self.fleet.or_else(|| wider.fleet.clone()),
        }
    }
}

/// Callers that share cached results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tenant {
    /// The agent that called, in all its conversations.
    #[default]
    Agent,
    /// The agent that called, in the same conversation.
    Session,
    /// All callers: for tools whose results do not depend on the caller.
    Everyone,
}
