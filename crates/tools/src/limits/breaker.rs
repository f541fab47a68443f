//! A tool or server that keeps failing is left alone for a while.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_contracts::{Executed, ToolErrorCode};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{failure::ToolFailure, result::ToolResult};

/// A time-out that comes sooner says more about who asked than about who was asked.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// When a [`Breaker`] opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures in a row that open it, at least 1. Default 5.
    pub failures: u32,
    /// How long it stays open before one call may try. Default 30 s.
    pub open: Duration,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self { failures: 5, open: Duration::from_secs(30) }
    }
}

/// A circuit breaker.
///
/// Closed, it lets calls pass and counts failures in a row. Open, it refuses them. When it was open
/// long enough, one call may try: if that goes well it closes, else it stays open as long again.
///
/// A failure is a time-out (of a second or more), `unavailable`, or `outcome_unknown`. An answer of
/// the tool is none, also when the tool says in it that it failed. Anything else, such as a cancel,
/// says nothing.
#[derive(Debug)]
pub struct Breaker {
    /// What it protects: a tool or a server.
    of: Arc<str>,
    rules: BreakerRules,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen,
}

/// What the end of a call says about whoever ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Good,
    Bad,
    None,
}

impl Breaker {
    /// A closed breaker in front of what is called `of`.
    #[must_use]
    pub fn new(of: &str, rules: BreakerRules) -> Arc<Self> {
        let state = Mutex::new(State::Closed { failures: 0 });
        Arc::new(Self { of: of.into(), rules, state })
    }

    /// Lets a call pass, or refuses it as unavailable with how long to wait.
    pub(crate) fn admit(&self) -> Result<Pass<'_>, ToolFailure> {
        let mut state = self.lock();
        let now = Instant::now();
        let wait = match *state {
            State::Closed { .. } => {
                return Ok(Pass { breaker: self, began: now, is_probe: false, sign: Sign::None });
            }
            State::Open { until } if until <= now => {
                *state = State::HalfOpen;
                return Ok(Pass { breaker: self, began: now, is_probe: true, sign: Sign::None });
            }
            State::Open { until } => until - now,
            State::HalfOpen => LEAST_TIMEOUT,
        };
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!("{} failed too often; call again in {seconds} s", self.of);
        Err(ToolFailure::Unavailable { message, executed: Executed::No })
    }

    fn ended(&self, is_probe: bool, sign: Sign) {
        let mut state = self.lock();
        *state = match (*state, sign) {
            (State::HalfOpen, Sign::Good) if is_probe => {
                info!(of = &*self.of, "it answers again");
                State::Closed { failures: 0 }
            }
            (State::HalfOpen, Sign::Bad) if is_probe => self.opened(),
            // Nothing was learned: the next call may try.
            (State::HalfOpen, Sign::None) if is_probe => State::Open { until: Instant::now() },
            (State::Closed { .. }, Sign::Good) => State::Closed { failures: 0 },
            (State::Closed { failures }, Sign::Bad) if failures + 1 >= self.rules.failures => {
                warn!(of = &*self.of, open = ?self.rules.open, "it failed too often; no calls");
                self.opened()
            }
            (State::Closed { failures }, Sign::Bad) => State::Closed { failures: failures + 1 },
            // A call from before it opened.
            (unchanged, _) => unchanged,
        };
    }

    fn opened(&self) -> State {
        State::Open { until: Instant::now() + self.rules.open }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was let pass; says how it ended when dropped.
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    began: Instant,
    is_probe: bool,
    sign: Sign,
}

impl Pass<'_> {
    pub(crate) fn ended(mut self, ended: &Result<ToolResult, ToolFailure>) {
        self.sign = match ended.as_ref().map_err(ToolFailure::code) {
            Ok(_) | Err(ToolErrorCode::ExecutionFailed) => Sign::Good,
            Err(ToolErrorCode::Timeout) if self.began.elapsed() >= LEAST_TIMEOUT => Sign::Bad,
            Err(ToolErrorCode::Unavailable | ToolErrorCode::OutcomeUnknown) => Sign::Bad,
            Err(_) => Sign::None,
        };
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.breaker.ended(self.is_probe, self.sign);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(30);

    fn breaker() -> Arc<Breaker> {
        Breaker::new("github", BreakerRules { failures: 2, open: OPEN })
    }

    fn bad() -> Result<ToolResult, ToolFailure> {
        let message = "gone".to_owned();
        Err(ToolFailure::Unavailable { message, executed: Executed::No })
    }

    fn end(breaker: &Breaker, ended: &Result<ToolResult, ToolFailure>) {
        breaker.admit().expect("let pass").ended(ended);
    }

    fn is_open(breaker: &Breaker) -> bool {
        breaker.admit().is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_it_says_for_how_long() {
        let breaker = breaker();
        end(&breaker, &bad());
        end(&breaker, &Ok(ToolResult::text("fine")));
        end(&breaker, &bad());
        end(&breaker, &bad());
        let refused = breaker.admit().err().expect("open");
        assert_eq!(
            (refused.code(), refused.executed()),
            (ToolErrorCode::Unavailable, Executed::No)
        );
        assert_eq!(refused.to_string(), "unavailable: github failed too often; call again in 30 s");
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_may_try_and_a_good_one_closes_it() {
        let breaker = breaker();
        end(&breaker, &bad());
        end(&breaker, &bad());
        tokio::time::advance(OPEN).await;
        let probe = breaker.admit().expect("one may try");
        assert!(is_open(&breaker), "no other at the same time");
        probe.ended(&bad());
        assert!(is_open(&breaker), "as long again");
        tokio::time::advance(OPEN).await;
        let given_up = breaker.admit().expect("one may try");
        drop(given_up);
        let probe = breaker.admit().expect("the next may try");
        probe.ended(&Ok(ToolResult::text("fine")));
        end(&breaker, &bad());
        assert!(!is_open(&breaker), "it counts from the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_tool_says_and_what_askers_do_is_no_failure() {
        let breaker = breaker();
        let short = ToolFailure::TimedOut {
            after: Duration::from_millis(1),
            executed: Executed::Yes,
            repeatable: false,
        };
        let none = [
            Ok(ToolResult::error("exit code 1")),
            Err(ToolFailure::failed("the disk is full")),
            Err(ToolFailure::Cancelled { executed: Executed::Yes }),
            Err(ToolFailure::invalid("no")),
            Err(short),
        ];
        for ended in none.iter().cycle().take(20) {
            end(&breaker, ended);
        }
        assert!(!is_open(&breaker));
    }

    #[tokio::test(start_paused = true)]
    async fn time_outs_are_failures() {
        let breaker = breaker();
        for _ in 0..2 {
            let pass = breaker.admit().expect("let pass");
            tokio::time::advance(LEAST_TIMEOUT).await;
            pass.ended(&Err(ToolFailure::TimedOut {
                after: LEAST_TIMEOUT,
                executed: Executed::Yes,
                repeatable: false,
            }));
        }
        assert!(is_open(&breaker));
    }
}
