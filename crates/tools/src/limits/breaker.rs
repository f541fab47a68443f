//! Circuit breakers.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{Executed, ToolErrorCode};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{failure::ToolFailure, result::ToolResult};

/// A shorter timeout is likely to be the caller's fault, so it does not count as a failure.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of a [`Breaker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// Consecutive failures that open the breaker, at least 1. Default 5.
    pub failures: u32,
    /// Time that it stays open before one call may probe. Default 30 s.
    pub open: Duration,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self { failures: 5, open: Duration::from_secs(30) }
    }
}

/// A circuit breaker for a tool or a server.
///
/// Closed, it admits calls and counts consecutive failures. Open, it rejects them. After the open
/// time it admits one probe: success closes it, failure opens it for the same time again.
///
/// A failure is a timeout of a second or more, `unavailable`, or `outcome_unknown`. A reply of the
/// tool is a success, even if it reports an error. Other outcomes, such as a cancellation, do not
/// count.
#[derive(Debug)]
pub struct Breaker {
    /// Name of the tool or server.
    target: Arc<str>,
    rules: BreakerRules,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen,
}

/// Meaning of an outcome for the health of the tool or server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Healthy,
    Failing,
    Unknown,
}

impl Breaker {
    /// Creates a closed breaker for the tool or server called `target`.
    #[must_use]
    pub fn new(target: &str, rules: BreakerRules) -> Arc<Self> {
        let state = Mutex::new(State::Closed { failures: 0 });
        Arc::new(Self { target: target.into(), rules, state })
    }

    /// Admits a call, or rejects it as unavailable with the time to wait.
    pub(crate) fn admit(&self) -> Result<Admission<'_>, ToolFailure> {
        let mut state = self.lock();
        let now = Instant::now();
        let wait = match *state {
            State::Closed { .. } => {
                return Ok(Admission {
                    breaker: self,
                    started: now,
                    is_probe: false,
                    health: Health::Unknown,
                });
            }
            State::Open { until } if until <= now => {
                *state = State::HalfOpen;
                return Ok(Admission {
                    breaker: self,
                    started: now,
                    is_probe: true,
                    health: Health::Unknown,
                });
            }
            State::Open { until } => until - now,
            State::HalfOpen => MIN_TIMEOUT,
        };
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!("{} failed too often; call again in {seconds} s", self.target);
        Err(ToolFailure::Unavailable { message, executed: Executed::No })
    }

    fn finish(&self, is_probe: bool, health: Health) {
        let mut state = self.lock();
        *state = match (*state, health) {
            (State::HalfOpen, Health::Healthy) if is_probe => {
                info!(target_name = &*self.target, "circuit breaker closed");
                State::Closed { failures: 0 }
            }
            (State::HalfOpen, Health::Failing) if is_probe => self.open(),
            // The probe was inconclusive, so the next call may probe.
            (State::HalfOpen, Health::Unknown) if is_probe => State::Open { until: Instant::now() },
            (State::Closed { .. }, Health::Healthy) => State::Closed { failures: 0 },
            (State::Closed { failures }, Health::Failing)
                if failures + 1 >= self.rules.failures =>
            {
                warn!(target_name = &*self.target, open = ?self.rules.open, "circuit breaker opened");
                self.open()
            }
            (State::Closed { failures }, Health::Failing) => {
                State::Closed { failures: failures + 1 }
            }
            // The call was admitted before the breaker opened.
            (unchanged, _) => unchanged,
        };
    }

    fn open(&self) -> State {
        State::Open { until: Instant::now() + self.rules.open }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// An admitted call. Reports its outcome when dropped.
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    started: Instant,
    is_probe: bool,
    health: Health,
}

impl Admission<'_> {
    pub(crate) fn finish(mut self, outcome: &Result<ToolResult, ToolFailure>) {
        self.health = match outcome.as_ref().map_err(ToolFailure::code) {
            Ok(_) | Err(ToolErrorCode::ExecutionFailed) => Health::Healthy,
            Err(ToolErrorCode::Timeout) if self.started.elapsed() >= MIN_TIMEOUT => Health::Failing,
            Err(ToolErrorCode::Unavailable | ToolErrorCode::OutcomeUnknown) => Health::Failing,
            Err(_) => Health::Unknown,
        };
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.breaker.finish(self.is_probe, self.health);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(30);

    fn breaker() -> Arc<Breaker> {
        Breaker::new("github", BreakerRules { failures: 2, open: OPEN })
    }

    fn unavailable() -> Result<ToolResult, ToolFailure> {
        let message = "gone".to_owned();
        Err(ToolFailure::Unavailable { message, executed: Executed::No })
    }

    fn finish(breaker: &Breaker, outcome: &Result<ToolResult, ToolFailure>) {
        breaker.admit().expect("admitted").finish(outcome);
    }

    fn is_open(breaker: &Breaker) -> bool {
        breaker.admit().is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_open_breaker() {
        let breaker = breaker();
        finish(&breaker, &unavailable());
        finish(&breaker, &Ok(ToolResult::text("fine")));
        finish(&breaker, &unavailable());
        finish(&breaker, &unavailable());
        let rejected = breaker.admit().err().expect("open");
        assert_eq!(
            (rejected.code(), rejected.executed()),
            (ToolErrorCode::Unavailable, Executed::No)
        );
        assert_eq!(
            rejected.to_string(),
            "unavailable: github failed too often; call again in 30 s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn successful_probe_closes_breaker() {
        let breaker = breaker();
        finish(&breaker, &unavailable());
        finish(&breaker, &unavailable());
        tokio::time::advance(OPEN).await;
        let probe = breaker.admit().expect("one probe");
        assert!(is_open(&breaker), "no other call during the probe");
        probe.finish(&unavailable());
        assert!(is_open(&breaker), "open again");
        tokio::time::advance(OPEN).await;
        let cancelled = breaker.admit().expect("one probe");
        drop(cancelled);
        let probe = breaker.admit().expect("the next call probes");
        probe.finish(&Ok(ToolResult::text("fine")));
        finish(&breaker, &unavailable());
        assert!(!is_open(&breaker), "failures are counted from zero");
    }

    #[tokio::test(start_paused = true)]
    async fn tool_errors_and_caller_errors_are_not_failures() {
        let breaker = breaker();
        let short = ToolFailure::TimedOut {
            after: Duration::from_millis(1),
            executed: Executed::Yes,
            repeatable: false,
        };
        let outcomes = [
            Ok(ToolResult::error("exit code 1")),
            Err(ToolFailure::failed("the disk is full")),
            Err(ToolFailure::Cancelled { executed: Executed::Yes }),
            Err(ToolFailure::invalid("no")),
            Err(short),
        ];
        for outcome in outcomes.iter().cycle().take(20) {
            finish(&breaker, outcome);
        }
        assert!(!is_open(&breaker));
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_are_failures() {
        let breaker = breaker();
        for _ in 0..2 {
            let admission = breaker.admit().expect("admitted");
            tokio::time::advance(MIN_TIMEOUT).await;
            admission.finish(&Err(ToolFailure::TimedOut {
                after: MIN_TIMEOUT,
                executed: Executed::Yes,
                repeatable: false,
            }));
        }
        assert!(is_open(&breaker));
    }
}
