//! Configuration of the calls of a tool or a server: `[handler.tools.<name>]` and
//! `[handler.servers.<name>]`.

use std::{
    collections::BTreeMap,
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;

use crate::{
    limits::{
        CallPolicy, Tenant,
        breaker::{Breaker, BreakerRules},
        fleet::{FleetLimit, FleetRules, FleetStore, MAX_FLEET_CONCURRENCY, WithoutStore},
        queue::Queue,
        rate::Rate,
    },
    period::{Period, duration},
};

/// `[handler.tools.<name>]`, `[handler.servers.<name>]`. Absent settings impose no limit; for a tool,
/// they default to the section of its server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallSection {
    /// Time for which successful results are cached, for tools that are safe to repeat.
    pub cache: Option<Period>,
    /// Callers that share a cached result. Default: the agent that called.
    pub cache_for: Option<Tenant>,
    /// Queue that calls wait in: one of `[handler.queues]`.
    pub queue: Option<String>,
    /// Weight of the tool or the server when a handler divides its capacity. Default 1.
    pub weight: Option<NonZeroU16>,
    /// Maximum duration of a call.
    pub timeout: Option<Period>,
    /// Maximum time without progress of a running call.
    pub idle_timeout: Option<Period>,
    /// Rate limit of each agent.
    pub rate: Option<RateSection>,
    /// Circuit breaker.
    pub breaker: Option<BreakerSection>,
    /// Limit of concurrent calls across all handlers on one store.
    pub fleet: Option<FleetSection>,
}

/// `rate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSection {
    /// Number of calls. They may arrive in one burst.
    pub calls: NonZeroU32,
    /// Period in which they are allowed.
    #[serde(deserialize_with = "duration")]
    pub per: Duration,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSection {
    /// Consecutive failures that open the breaker. Default 5.
    pub failures: u32,
    /// Time that it stays open before one call may probe. Default 30 s.
    #[serde(deserialize_with = "duration")]
    pub open: Duration,
}

impl Default for BreakerSection {
    fn default() -> Self {
        let BreakerRules { failures, open } = BreakerRules::default();
        Self { failures, open }
    }
}

/// `fleet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetSection {
    /// Concurrent calls across all handlers, 1 to 64.
    pub concurrency: u16,
    /// Maximum time that a call waits for a permit; until its deadline when off. Default 30 s.
    #[serde(default = "FleetSection::default_wait")]
    pub wait: Period,
    /// Behavior while the store is unavailable. Default: each handler enforces the limit by itself.
    #[serde(default)]
    pub without_store: WithoutStore,
}

impl FleetSection {
    fn default_wait() -> Period {
        Duration::from_secs(30).into()
    }
}

impl CallSection {
    /// Returns the errors of the section, for an operator. `path` is its configuration key.
    #[must_use]
    pub fn validate(&self, path: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: &str| problems.push(format!("{path}.{key}: {what}"));
        if let Some(rate) = &self.rate
            && (rate.per / rate.calls.get()).is_zero()
        {
            problem("rate.per", "must be at least a nanosecond for each call");
        }
        if let Some(breaker) = &self.breaker {
            if breaker.failures == 0 {
                problem("breaker.failures", "must be at least 1");
            }
            if breaker.open.is_zero() {
                problem("breaker.open", "must be longer than zero");
            }
        }
        if let Some(fleet) = &self.fleet
            && !(1..=MAX_FLEET_CONCURRENCY).contains(&fleet.concurrency)
        {
            problem("fleet.concurrency", &format!("must be 1 to {MAX_FLEET_CONCURRENCY}"));
        }
        problems
    }

    /// Creates the policy of the tool or server `target`. A fleet limit is created only with a store, and
    /// its leases are stored under `lease_prefix`.
    #[must_use]
    pub fn policy(
        &self,
        target: &str,
        lease_prefix: &str,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
    ) -> CallPolicy {
        let rules = |section: &FleetSection| FleetRules {
            running: section.concurrency,
            wait: section.wait.duration().unwrap_or(Duration::MAX),
            without_store: section.without_store,
        };
        let breaker = |section: &BreakerSection| {
            Breaker::new(target, BreakerRules { failures: section.failures, open: section.open })
        };
        // `off` becomes zero, which overrides the server's section.
        let limit = |time: Option<Period>| Some(time?.duration().unwrap_or_default());
        CallPolicy {
            cache: self.cache,
            cache_for: self.cache_for,
            queue: self.queue.as_ref().and_then(|queue| queues.get(queue)).cloned(),
            timeout: limit(self.timeout),
            idle_timeout: limit(self.idle_timeout),
            // An invalid rate is reported by `validate`.
            rate: self.rate.and_then(|rate| Rate::new(target, rate.calls, rate.per)),
            breaker: self.breaker.as_ref().map(breaker),
            fleet: self.fleet.as_ref().zip(fleet).and_then(|(section, store)| {
                FleetLimit::new(lease_prefix, store.clone(), rules(section)).ok()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rate_and_breaker_reject_off() {
        let off =
            [json!({"rate": {"calls": 1, "per": "off"}}), json!({"breaker": {"open": "off"}})];
        for section in off {
            let error = serde_json::from_value::<CallSection>(section).unwrap_err().to_string();
            assert!(error.contains("expected a duration with a unit"), "{error}");
        }
    }
}
