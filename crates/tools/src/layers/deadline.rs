//! Deadlines and cancellation of calls.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::Executed;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Call, CallService};
use crate::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    result::ToolResult,
};

/// Drops the call when its deadline passes, when the tool makes no progress for too long, or when it
/// is cancelled.
///
/// The effective deadline is the earliest of the caller's deadline, the tool's own timeout and that
/// of its policy. Timeouts start here, after the call has waited for its permits. A tool that
/// enforces its deadline itself, because it knows better whether it ran, is not dropped; its own
/// timeout and the idle timeout do not apply either.
#[derive(Debug, Clone)]
pub struct Deadline<S>(S);

impl<S> Deadline<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Deadline<S> {
    async fn call(&self, mut call: Call) -> Result<ToolResult, ToolFailure> {
        let repeatable = call.may_retry();
        let now = Instant::now();
        let enforces_own_deadline = call.tool.tool().enforces_own_deadline();
        let tool_timeout = call.tool.registration().timeout_ms.filter(|_| !enforces_own_deadline);
        let tool_timeout = tool_timeout.map(Duration::from_millis);
        for timeout in tool_timeout.into_iter().chain(call.policy.timeout) {
            call.context.deadline = call.context.deadline.min(now + timeout);
        }
        let deadline = call.context.deadline;
        let after = deadline.saturating_duration_since(now);
        if after.is_zero() {
            return Err(ToolFailure::TimedOut { after, executed: Executed::No, repeatable });
        }
        if call.context.cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        if enforces_own_deadline {
            return self.0.call(call).await;
        }
        let cancellation = call.context.cancellation.clone();
        let idle = call.policy.idle_timeout;
        let idle = idle.map(|limit| Box::pin(IdleTimer::new(&mut call.context, limit).expired()));
        let expired = async {
            match idle {
                Some(expired) => expired.await,
                None => std::future::pending().await,
            }
        };
        let executed = Executed::Yes;
        tokio::select! {
            biased;
            outcome = timeout_at(deadline, self.0.call(call)) => {
                outcome.unwrap_or(Err(ToolFailure::TimedOut { after, executed, repeatable }))
            }
            () = cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            after = expired => {
                Err(ToolFailure::TimedOut { after, executed, repeatable })
            }
        }
    }
}

/// Measures the time since a tool's last update.
struct IdleTimer {
    limit: Duration,
    updates: watch::Receiver<()>,
}

impl IdleTimer {
    /// Observes the updates in `context`.
    fn new(context: &mut ToolContext, limit: Duration) -> Self {
        let (sender, updates) = watch::channel(());
        let receiver = context.updates.take();
        context.updates = Some(Arc::new(move |update: ToolUpdate| {
            sender.send_replace(());
            if let Some(receiver) = &receiver {
                receiver(update);
            }
        }));
        Self { limit, updates }
    }

    /// Returns after a time of `limit` without an update.
    async fn expired(self) -> Duration {
        let Self { limit, mut updates } = self;
        while let Ok(Ok(())) = timeout_at(Instant::now() + limit, updates.changed()).await {}
        limit
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolErrorCode;
    use tokio::time::sleep;

    use super::*;
    use crate::testing::{call, service};

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends an update every second, `updates` times, and then hangs.
    async fn report(call: Call, updates: u32) -> Result<ToolResult, ToolFailure> {
        for _ in 0..updates {
            sleep(SECOND).await;
            call.context.progress("working");
        }
        std::future::pending().await
    }

    async fn timed_out(mut call: Call, updates: u32) -> Duration {
        call.context.deadline = Instant::now() + 60 * SECOND;
        let started = Instant::now();
        let deadline = Deadline::new(service(move |call| report(call, updates)));
        let failure = deadline.call(call).await.expect_err("the tool hangs");
        assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Yes));
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_timeout_applies() {
        let mut limited = call("talk", "{}");
        limited.policy.timeout = Some(5 * SECOND);
        assert_eq!(timed_out(limited, 0).await, 5 * SECOND);
        assert_eq!(timed_out(call("talk", "{}"), 0).await, 60 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn updates_extend_idle_timeout_up_to_deadline() {
        let idle_limited = || {
            let mut call = call("talk", "{}");
            call.policy.idle_timeout = Some(3 * SECOND);
            call
        };
        assert_eq!(timed_out(idle_limited(), 10).await, 13 * SECOND);
        assert_eq!(timed_out(idle_limited(), 1000).await, 60 * SECOND);
    }
}
