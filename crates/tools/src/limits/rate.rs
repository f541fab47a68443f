//! How often an agent may call a tool.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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

/// The agents that are remembered. When there are more, those long within their rate are forgotten;
/// if none is, newcomers have to wait, and nobody else.
const MOST_AGENTS: usize = 4096;

/// So many calls in so much time, for each agent by itself. They may come all at once; then one
/// more is allowed as time goes by.
pub struct Rate {
    /// What is limited: a tool or a server.
    of: Arc<str>,
    calls: NonZeroU32,
    per: Duration,
    quota: Quota,
    clock: RuntimeClock,
    agents: Mutex<HashMap<AgentName, Caller>>,
}

/// An agent that calls.
struct Caller {
    limiter: RateLimiter<NotKeyed, InMemoryState, RuntimeClock, NoOpMiddleware<Nanos>>,
    last: Instant,
}

impl Rate {
    /// `calls` in `per` of what is called `of`. `None` where `per` is less than a nanosecond for
    /// each.
    #[must_use]
    pub fn new(of: &str, calls: NonZeroU32, per: Duration) -> Option<Arc<Self>> {
        let quota = Quota::with_period(per / calls.get())?.allow_burst(calls);
        let clock = RuntimeClock(Instant::now());
        let agents = Mutex::default();
        Some(Arc::new(Self { of: of.into(), calls, per, quota, clock, agents }))
    }

    /// Counts a call of `agent`.
    ///
    /// # Errors
    /// Overloaded, with how long to wait, when it is one too many.
    pub fn admit(&self, agent: &AgentName) -> Result<(), ToolFailure> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if !agents.contains_key(agent) && agents.len() >= MOST_AGENTS {
            // After that time nothing of a call is left to count.
            agents.retain(|_, caller| caller.last.elapsed() < self.per);
            if agents.len() >= MOST_AGENTS {
                let message = format!("too many agents call {}; call again later", self.of);
                return Err(ToolFailure::Overloaded { message });
            }
        }
        let now = Instant::now();
        let caller = agents.entry(agent.clone()).or_insert_with(|| Caller {
            limiter: RateLimiter::direct_with_clock(self.quota, self.clock),
            last: now,
        });
        let Err(early) = caller.limiter.check() else {
            caller.last = now;
            return Ok(());
        };
        let wait = early.wait_time_from(self.clock.now());
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let (calls, per, of) = (self.calls, self.per, &self.of);
        let message =
            format!("at most {calls} calls of {of} in {per:?}; call again in {seconds} s");
        Err(ToolFailure::Overloaded { message })
    }
}

impl std::fmt::Debug for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { of, calls, per, .. } = self;
        write!(f, "Rate({of}, {calls} in {per:?})")
    }
}

/// The runtime's clock, since it was made.
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
    async fn an_agent_that_calls_too_often_is_told_how_long_to_wait_and_others_are_not_touched() {
        let rate = Rate::new("echo", NonZeroU32::new(2).unwrap(), Duration::from_secs(20)).unwrap();
        let (loud, quiet) = (agent("loud"), agent("quiet"));
        rate.admit(&loud).unwrap();
        rate.admit(&loud).unwrap();
        let refused = rate.admit(&loud).expect_err("one too many");
        assert_eq!((refused.code(), refused.executed()), (ToolErrorCode::Overloaded, Executed::No));
        assert!(refused.is_retryable());
        assert_eq!(
            refused.to_string(),
            "overloaded: at most 2 calls of echo in 20s; call again in 10 s"
        );
        rate.admit(&quiet).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        rate.admit(&loud).unwrap();
        rate.admit(&loud).expect_err("one in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn agents_that_are_gone_are_forgotten() {
        let rate = Rate::new("echo", NonZeroU32::new(1).unwrap(), Duration::from_secs(1)).unwrap();
        for number in 0..MOST_AGENTS {
            rate.admit(&agent(&format!("agent-{number}"))).unwrap();
        }
        rate.admit(&agent("late")).expect_err("there is no more room");
        tokio::time::advance(Duration::from_secs(2)).await;
        rate.admit(&agent("late")).unwrap();
        assert_eq!(rate.agents.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_known_is_not_refused_because_there_is_no_room_for_others() {
        let rate = Rate::new("echo", NonZeroU32::new(2).unwrap(), Duration::from_secs(1)).unwrap();
        for number in 0..MOST_AGENTS {
            rate.admit(&agent(&format!("agent-{number}"))).unwrap();
        }
        rate.admit(&agent("late")).expect_err("there is no more room");
        rate.admit(&agent("agent-7")).unwrap();
    }
}
