//! Every call ends in time, or when its asker gives up.

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

/// Drops the call when its deadline passes, when its tool is silent for too long, or when it is
/// cancelled.
///
/// The earliest holds of the caller's deadline, the tool's own time-out and that of its policy. They
/// count from here, after the call waited for its place. A tool that keeps its deadline itself,
/// because it knows better whether it ran, is left to do so; its own time-out, and how long it may be
/// silent, are its own affair too.
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
        let keeps_deadline = call.tool.tool().keeps_deadline();
        let own = call.tool.registration().timeout_ms.filter(|_| !keeps_deadline);
        let own = own.map(Duration::from_millis);
        for timeout in own.into_iter().chain(call.policy.timeout) {
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
        if keeps_deadline {
            return self.0.call(call).await;
        }
        let cancellation = call.context.cancellation.clone();
        let silence = call.policy.idle_timeout;
        let silence = silence.map(|most| Box::pin(Silence::of(&mut call.context, most).too_long()));
        let too_long = async {
            match silence {
                Some(too_long) => too_long.await,
                None => std::future::pending().await,
            }
        };
        let executed = Executed::Yes;
        tokio::select! {
            biased;
            ended = timeout_at(deadline, self.0.call(call)) => {
                ended.unwrap_or(Err(ToolFailure::TimedOut { after, executed, repeatable }))
            }
            () = cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
            after = too_long => {
                Err(ToolFailure::TimedOut { after, executed, repeatable })
            }
        }
    }
}

/// How long a tool has said nothing.
struct Silence {
    most: Duration,
    heard: watch::Receiver<()>,
}

impl Silence {
    /// Listens to the signs of life in `context`.
    fn of(context: &mut ToolContext, most: Duration) -> Self {
        let (hears, heard) = watch::channel(());
        let asker = context.updates.take();
        context.updates = Some(Arc::new(move |update: ToolUpdate| {
            hears.send_replace(());
            if let Some(asker) = &asker {
                asker(update);
            }
        }));
        Self { most, heard }
    }

    /// Returns when it was silent for so long.
    async fn too_long(self) -> Duration {
        let Self { most, mut heard } = self;
        while let Ok(Ok(())) = timeout_at(Instant::now() + most, heard.changed()).await {}
        most
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolErrorCode;
    use tokio::time::sleep;

    use super::*;
    use crate::testing::{call, service};

    const SECOND: Duration = Duration::from_secs(1);

    /// Says something every second, so many times, and then nothing.
    async fn talk(call: Call, words: u32) -> Result<ToolResult, ToolFailure> {
        for _ in 0..words {
            sleep(SECOND).await;
            call.context.progress("still here");
        }
        std::future::pending().await
    }

    async fn timed_out(mut call: Call, words: u32) -> Duration {
        call.context.deadline = Instant::now() + 60 * SECOND;
        let began = Instant::now();
        let deadline = Deadline::new(service(move |call| talk(call, words)));
        let failure = deadline.call(call).await.expect_err("it never ends");
        assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Yes));
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_all_time_outs_holds() {
        let mut by_policy = call("talk", "{}");
        by_policy.policy.timeout = Some(5 * SECOND);
        assert_eq!(timed_out(by_policy, 0).await, 5 * SECOND);
        assert_eq!(timed_out(call("talk", "{}"), 0).await, 60 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_put_off_the_end_but_not_beyond_the_deadline() {
        let patient = || {
            let mut call = call("talk", "{}");
            call.policy.idle_timeout = Some(3 * SECOND);
            call
        };
        assert_eq!(timed_out(patient(), 10).await, 13 * SECOND);
        assert_eq!(timed_out(patient(), 1000).await, 60 * SECOND);
    }
}
