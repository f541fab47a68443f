//! Every call ends in time, or when its asker gives up.

use std::time::Duration;

use rockbot_contracts::Executed;
use tokio::time::{Instant, timeout_at};
use tower_layer::Layer;

use super::{CallService, ResolvedCall};
use crate::{failure::ToolFailure, result::ToolResult};

/// Puts [`Deadline`] around a service.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline(inner)
    }
}

/// Drops the call when its deadline passes or when it is cancelled.
///
/// A tool with a time-out of its own gets the earlier of the two. A tool that keeps its deadline
/// itself, because it knows better whether it ran, is left to do so.
#[derive(Debug, Clone)]
pub struct Deadline<S>(S);

impl<S: CallService<ResolvedCall>> CallService<ResolvedCall> for Deadline<S> {
    async fn call(&self, mut call: ResolvedCall) -> Result<ToolResult, ToolFailure> {
        let registration = call.tool.registration();
        let repeatable = registration.hints.may_run_again();
        let now = Instant::now();
        if let Some(own) = registration.timeout_ms.map(Duration::from_millis) {
            call.context.deadline = call.context.deadline.min(now + own);
        }
        let deadline = call.context.deadline;
        let after = deadline.saturating_duration_since(now);
        if after.is_zero() {
            return Err(ToolFailure::TimedOut { after, executed: Executed::No, repeatable });
        }
        if call.context.cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        if call.tool.tool().keeps_deadline() {
            return self.0.call(call).await;
        }
        let cancellation = call.context.cancellation.clone();
        let executed = Executed::Yes;
        tokio::select! {
            biased;
            ended = timeout_at(deadline, self.0.call(call)) => {
                ended.unwrap_or(Err(ToolFailure::TimedOut { after, executed, repeatable }))
            }
            () = cancellation.cancelled() => Err(ToolFailure::Cancelled { executed }),
        }
    }
}
