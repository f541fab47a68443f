//! The policy of a call: what limits it, and how long its result is kept.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use super::{breaker::Breaker, fleet::FleetLimit, queue::Queue, rate::Rate};
use crate::period::Period;

/// Rules for the calls of a tool. What is absent does not hold.
///
/// Limits have a state and are shared: the clones of a policy count together.
#[derive(Debug, Clone, Default)]
pub struct CallPolicy {
    /// How long its results are kept; not at all when off.
    pub cache: Option<Period>,
    /// Who may be given a kept result. Absent: the agent that called.
    pub cache_for: Option<Tenant>,
    /// Where calls wait for each other.
    pub queue: Option<Arc<Queue>>,
    /// The longest that it may run. The caller's deadline holds as well. Zero takes away what a wider
    /// policy says.
    pub timeout: Option<Duration>,
    /// The longest that it may be silent; progress and partial results count as a word. Zero takes
    /// away what a wider policy says.
    pub idle_timeout: Option<Duration>,
    /// How often an agent may call it.
    pub rate: Option<Arc<Rate>>,
    /// When it is left alone because it fails.
    pub breaker: Option<Arc<Breaker>>,
    /// How many of its calls run at once in all processes on one store.
    pub fleet: Option<Arc<FleetLimit>>,
}

impl CallPolicy {
    /// This policy, and that of `wider` where this one says nothing.
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

/// Who may be given what another call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tenant {
    /// The agent that called, in all its conversations.
    #[default]
    Agent,
    /// The agent that called, in the same conversation.
    Session,
    /// Everybody: for tools that answer everybody the same.
    Everyone,
}
