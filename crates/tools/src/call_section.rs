//! What an operator says about the calls of a tool or of a server: `[handler.tools.<name>]` and
//! `[handler.servers.<name>]`.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use serde::Deserialize;

use crate::{
    limits::{
        CallPolicy, Tenant,
        breaker::{Breaker, BreakerRules},
        fleet::{FleetLimit, FleetRules, FleetStore, MOST_PLACES, WithoutStore},
        queue::Queue,
        rate::Rate,
    },
    period::Period,
};

/// `[handler.tools.<name>]`, `[handler.servers.<name>]`. What is absent does not hold; for a tool,
/// what is absent is as its server's section says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallSection {
    /// How long results are kept that are no errors, of tools whose repetition changes nothing.
    pub cache: Option<Period>,
    /// Who may be given a kept result. Default the agent that called.
    pub cache_for: Option<Tenant>,
    /// The queue that its calls wait in: one of `[handler.queues]`.
    pub queue: Option<String>,
    /// The longest that a call may run.
    pub timeout: Option<Period>,
    /// The longest that it may be silent while it runs.
    pub idle_timeout: Option<Period>,
    /// How often each agent may call.
    pub rate: Option<RateSection>,
    /// When it is left alone because it fails.
    pub breaker: Option<BreakerSection>,
    /// How many calls run at once in all handlers on one store.
    pub fleet: Option<FleetSection>,
}

/// `rate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSection {
    /// So many calls; they may come all at once.
    pub calls: NonZeroU32,
    /// In so much time.
    pub per: Period,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSection {
    /// Failures in a row that open it. Default 5.
    pub failures: u32,
    /// How long it stays open before one call may try. Default 30 s.
    pub open: Period,
}

impl Default for BreakerSection {
    fn default() -> Self {
        let BreakerRules { failures, open } = BreakerRules::default();
        Self { failures, open: open.into() }
    }
}

/// `fleet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetSection {
    /// Calls that run at once in all handlers, 1 to 64.
    pub concurrency: u16,
    /// How long a call waits for a place; until its deadline when off. Default 30 s.
    #[serde(default = "FleetSection::default_wait")]
    pub wait: Period,
    /// What happens while the store is out of reach. Default: the limit holds in each handler.
    #[serde(default)]
    pub without_store: WithoutStore,
}

impl FleetSection {
    fn default_wait() -> Period {
        Duration::from_secs(30).into()
    }
}

impl CallSection {
    /// What is wrong with it, in words for an operator; `at` is where it is.
    #[must_use]
    pub fn problems(&self, at: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: &str| problems.push(format!("{at}.{key}: {what}"));
        if let Some(rate) = &self.rate
            && (rate.per.duration().unwrap_or_default() / rate.calls.get()).is_zero()
        {
            problem("rate.per", "must be at least a nanosecond for each call");
        }
        if let Some(breaker) = &self.breaker {
            if breaker.failures == 0 {
                problem("breaker.failures", "must be at least 1");
            }
            if breaker.open.duration().is_none() {
                problem("breaker.open", "must be longer than nothing");
            }
        }
        if let Some(fleet) = &self.fleet
            && !(1..=MOST_PLACES).contains(&fleet.concurrency)
        {
            problem("fleet.concurrency", &format!("must be 1 to {MOST_PLACES}"));
        }
        problems
    }

    /// The policy of what is called `of`; limits for the fleet only where there is a store for them,
    /// with their places under `place`.
    #[must_use]
    pub fn policy(
        &self,
        of: &str,
        place: &str,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
    ) -> CallPolicy {
        let rules = |section: &FleetSection| FleetRules {
            running: section.concurrency,
            wait: section.wait.duration().unwrap_or(Duration::MAX),
            without_store: section.without_store,
        };
        let breaker = |section: &BreakerSection| {
            let open = section.open.duration().unwrap_or_default();
            Breaker::new(of, BreakerRules { failures: section.failures, open })
        };
        // Off is zero: it goes before what the server's section says.
        let limit = |time: Option<Period>| Some(time?.duration().unwrap_or_default());
        CallPolicy {
            cache: self.cache,
            cache_for: self.cache_for,
            queue: self.queue.as_ref().and_then(|queue| queues.get(queue)).cloned(),
            timeout: limit(self.timeout),
            idle_timeout: limit(self.idle_timeout),
            // What can't be made is a problem.
            rate: self.rate.and_then(|rate| Rate::new(of, rate.calls, rate.per.duration()?)),
            breaker: self.breaker.as_ref().map(breaker),
            fleet: self
                .fleet
                .as_ref()
                .zip(fleet)
                .and_then(|(section, at)| FleetLimit::new(place, at.clone(), rules(section)).ok()),
        }
    }
}
