//! Rate limits per agent.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use rockbot_contracts::AgentName;
use tokio::time::Instant;

use crate::failure::ToolFailure;

/// Maximum number of tracked agents. Above it, agents without recent calls are evicted; if there is
/// none, calls of new agents are rejected, and tracked agents are not affected.
const MAX_AGENTS: usize = 4096;

/// A rate limit for each agent. Allows `calls` in one burst, and then regains calls at a constant
/// rate of `calls` per `per`.
pub struct Rate {
    /// Name of the tool or server.
    target: Arc<str>,
    calls: NonZeroU32,
    per: Duration,
    quota: Quota,
    clock: RuntimeClock,
    agents: Mutex<HashMap<AgentName, Caller>>,
}

/// A tracked agent.
struct Caller {
    limiter: RateLimiter<NotKeyed, InMemoryState, RuntimeClock, NoOpMiddleware<Nanos>>,
    last: Instant,
}

impl Rate {
    /// Creates a limit of `calls` per `per` for the tool or server called `target`. Returns `None` if
    /// `per` is less than a nanosecond per call.
    #[must_use]
    pub fn new(target: &str, calls: NonZeroU32, per: Duration) -> Option<Arc<Self>> {
        let quota = Quota::with_period(per / calls.get())?.allow_burst(calls);
        let clock = RuntimeClock(Instant::now());
        let agents = Mutex::default();
        Some(Arc::new(Self { target: target.into(), calls, per, quota, clock, agents }))
    }

    /// Counts a call of `agent`.
    ///
    /// # Errors
    /// Overloaded, with the time to wait, when the limit is exceeded.
    pub fn admit(&self, agent: &AgentName) -> Result<(), ToolFailure> {
        let mut agents = self.agents.lock();
        if !agents.contains_key(agent) && agents.len() >= MAX_AGENTS {
            // After this time no earlier call counts.
            agents.retain(|_, caller| caller.last.elapsed() < self.per);
            if agents.len() >= MAX_AGENTS {
                let message = format!("too many agents call {}; call again later", self.target);
                return Err(ToolFailure::Overloaded { message });
            }
        }
        let now = Instant::now();
        let caller = agents.entry(agent.clone()).or_insert_with(|| Caller {
            limiter: RateLimiter::direct_with_clock(self.quota, self.clock),
            last: now,
        });
        let Err(not_until) = caller.limiter.check() else {
            caller.last = now;
            return Ok(());
        };
        let wait = not_until.wait_time_from(self.clock.now());
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let (calls, per, target) = (self.calls, self.per, &self.target);
        let message =
            format!("at most {calls} calls of {target} in {per:?}; call again in {seconds} s");
        Err(ToolFailure::Overloaded { message })
    }
}

impl std::fmt::Debug for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { target, calls, per, .. } = self;
        write!(f, "Rate({target}, {calls} in {per:?})")
    }
}

/// Clock of the tokio runtime.
#[derive(Debug, Clone, Copy)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{Executed, ToolErrorCode};

    use super::*;

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn exceeded_rate_rejects_only_that_agent() {
        let rate = Rate::new("echo", NonZeroU32::new(2).unwrap(), Duration::from_secs(20)).unwrap();
        let (loud, quiet) = (agent("loud"), agent("quiet"));
        rate.admit(&loud).unwrap();
        rate.admit(&loud).unwrap();
        let rejected = rate.admit(&loud).expect_err("limit exceeded");
        assert_eq!(
            (rejected.code(), rejected.executed()),
            (ToolErrorCode::Overloaded, Executed::No)
        );
        assert!(rejected.is_retryable());
        assert_eq!(
            rejected.to_string(),
            "overloaded: at most 2 calls of echo in 20s; call again in 10 s"
        );
        rate.admit(&quiet).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        rate.admit(&loud).unwrap();
        rate.admit(&loud).expect_err("one call per ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_agents_are_evicted() {
        let rate = Rate::new("echo", NonZeroU32::new(1).unwrap(), Duration::from_secs(1)).unwrap();
        for number in 0..MAX_AGENTS {
            rate.admit(&agent(&format!("agent-{number}"))).unwrap();
        }
        rate.admit(&agent("late")).expect_err("too many agents");
        tokio::time::advance(Duration::from_secs(2)).await;
        rate.admit(&agent("late")).unwrap();
        assert_eq!(rate.agents.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tracked_agent_is_admitted_at_capacity() {
        let rate = Rate::new("echo", NonZeroU32::new(2).unwrap(), Duration::from_secs(1)).unwrap();
        for number in 0..MAX_AGENTS {
            rate.admit(&agent(&format!("agent-{number}"))).unwrap();
        }
        rate.admit(&agent("late")).expect_err("too many agents");
        rate.admit(&agent("agent-7")).unwrap();
    }
}
