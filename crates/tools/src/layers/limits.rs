//! Layers that enforce the limits of a call's policy.

use super::{Call, CallService};
use crate::{failure::ToolFailure, result::ToolResult};

/// Enforces the rate limit.
#[derive(Debug, Clone)]
pub(crate) struct RateLimit<S>(S);

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for RateLimit<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        if let Some(rate) = &call.policy.rate {
            rate.admit(&call.context.agent)?;
        }
        self.0.call(call).await
    }
}

/// Waits for the queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueLimit<S>(S);

impl<S> QueueLimit<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for QueueLimit<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let _permit = match call.policy.queue.clone() {
            Some(queue) => Some(queue.acquire(&call.context, call.may_retry()).await?),
            None => None,
        };
        self.0.call(call).await
    }
}

/// Waits for the fleet limit.
#[derive(Debug, Clone)]
pub(crate) struct FleetConcurrency<S>(S);

impl<S> FleetConcurrency<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for FleetConcurrency<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let Some(limit) = call.policy.fleet.clone() else { return self.0.call(call).await };
        let _permit = Box::pin(limit.acquire(&call.context, call.may_retry())).await?;
        self.0.call(call).await
    }
}

/// Rejects calls while the circuit breaker is open.
#[derive(Debug, Clone)]
pub(crate) struct BreakerCheck<S>(S);

impl<S> BreakerCheck<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for BreakerCheck<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let Some(breaker) = call.policy.breaker.clone() else { return self.0.call(call).await };
        let admission = breaker.admit()?;
        let outcome = self.0.call(call).await;
        admission.finish(&outcome);
        outcome
    }
}
