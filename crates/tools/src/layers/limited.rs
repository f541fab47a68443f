//! The limits of a call's policy, enforced one around the other.

use super::{Call, CallService};
use crate::{failure::ToolFailure, result::ToolResult};

/// Refuses the calls of an agent that come too often.
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

/// Lets a call of a tool in a queue run when it is its turn.
#[derive(Debug, Clone)]
pub(crate) struct Slot<S>(S);

impl<S> Slot<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Slot<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let _place = match call.policy.queue.clone() {
            Some(queue) => Some(queue.place(&call.context, call.may_retry()).await?),
            None => None,
        };
        self.0.call(call).await
    }
}

/// Lets a call of a tool with a limit for the whole fleet run when there is a place.
#[derive(Debug, Clone)]
pub(crate) struct FleetSlot<S>(S);

impl<S> FleetSlot<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for FleetSlot<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let Some(limit) = call.policy.fleet.clone() else { return self.0.call(call).await };
        let _place = Box::pin(limit.place(&call.context, call.may_retry())).await?;
        self.0.call(call).await
    }
}

/// Refuses calls while the breaker of their tool is open.
#[derive(Debug, Clone)]
pub(crate) struct Break<S>(S);

impl<S> Break<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Break<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let Some(breaker) = call.policy.breaker.clone() else { return self.0.call(call).await };
        let pass = breaker.admit()?;
        let ended = self.0.call(call).await;
        pass.ended(&ended);
        ended
    }
}
