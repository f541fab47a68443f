//! Probe of the reply path: a call without effect, repeated every 5 s.
//!
//! A process can be connected and publish, and still receive no replies: its reply queue may be gone, or
//! its requests may have no consumer. Calls then fail by timeout, minutes later. The probe detects it
//! within 15 s.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use metrics::{gauge, histogram};
use rockbot_bus::{PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    Envelope, RoutingKey, SessionId, ToolCallId, ToolInvokeRequest, TraceContext, tool::REPLY_PROBE,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};
use tracing::{error, info};

/// Interval between probes.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum wait for a reply. A probe sent just before replies stopped may still get one, or count as
/// successful because of another request's reply; the next one does not. Three times this, with
/// [`GRACE`], is the detection time of 15 s.
const TIMEOUT: Duration = Duration::from_secs(4);
const GRACE: Duration = Duration::from_secs(1);

/// Result of the last probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyState {
    /// No conclusive probe yet.
    Unknown,
    /// Replies arrive.
    Arriving,
    /// No reply arrived in time.
    Missing,
}

/// Probes the reply path until dropped.
#[derive(Debug)]
pub struct ReplyProbe {
    state: watch::Receiver<ReplyState>,
    task: JoinHandle<()>,
}

impl ReplyProbe {
    /// Starts to send a probe every 5 s, to the consumers of the key that `key` returns at that time. Sets `rockbot_reply_probe_up`, and
    /// logs when replies stop and when they arrive again.
    ///
    /// A probe without a reply counts as successful if replies to other requests arrive meanwhile: it
    /// only waits in a long queue.
    #[must_use]
    pub fn start(requester: Arc<Requester>, key: impl Fn() -> RoutingKey + Send + 'static) -> Self {
        let (sender, state) = watch::channel(ReplyState::Unknown);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let before = sender.borrow().to_owned();
                let now = probe(&requester, &key()).await.unwrap_or(before);
                report(before, now);
                sender.send_replace(now);
            }
        });
        Self { state, task }
    }

    /// Returns the current state, as a receiver of changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ReplyState> {
        self.state.clone()
    }

    /// Returns a readiness check that fails after a probe without a reply.
    pub fn health_check(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
        let state = self.state.clone();
        move || {
            let health = match *state.borrow() {
                ReplyState::Missing => Err("replies to calls do not arrive".to_owned()),
                ReplyState::Unknown | ReplyState::Arriving => Ok(()),
            };
            Box::pin(std::future::ready(health))
        }
    }
}

impl Drop for ReplyProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends one probe. Returns `None` if the result is inconclusive.
async fn probe(requester: &Requester, key: &RoutingKey) -> Option<ReplyState> {
    let id = ToolCallId::generate();
    let request = ToolInvokeRequest {
        tool_call_id: id.clone(),
        tool_name: REPLY_PROBE.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::generate(),
    };
    let mut envelope = Envelope::from_payload(&request)
        .with_correlation_id(id.as_str())
        .with_source(requester.address().agent().as_str())
        .transient();
    envelope.trace = unsampled_trace(&id);
    let replies_before = requester.stats().answered();
    let sent = Instant::now();
    let reply = requester.request_unbounded(Request {
        key: key.clone(),
        envelope,
        timeout: TIMEOUT,
        grace: GRACE,
        on_interim: None,
        retry: false,
        abandoned: None,
    });
    match reply.await {
        Ok(_) => {
            histogram!("rockbot_reply_probe_duration_seconds").record(sent.elapsed());
            Some(ReplyState::Arriving)
        }
        // Other metrics cover these: there is no handler, or its queue is full.
        Err(RequestError::Publish(
            PublishError::Unroutable { .. } | PublishError::Refused { .. },
        )) => None,
        Err(_) if requester.stats().answered() > replies_before => Some(ReplyState::Arriving),
        Err(_) => Some(ReplyState::Missing),
    }
}

fn report(before: ReplyState, now: ReplyState) {
    match now {
        ReplyState::Unknown => return,
        ReplyState::Arriving => gauge!("rockbot_reply_probe_up").set(1.0),
        ReplyState::Missing => gauge!("rockbot_reply_probe_up").set(0.0),
    }
    if now == ReplyState::Missing && before != now {
        error!("replies to calls do not arrive; check the reply queue and its consumer");
    }
    if now == ReplyState::Arriving && before == ReplyState::Missing {
        info!("replies to calls arrive again");
    }
}

/// Returns an unsampled trace context: probes are too frequent to be worth recording.
fn unsampled_trace(id: &ToolCallId) -> TraceContext {
    let digits: String = id.as_str().chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.to_ascii_lowercase();
    let parent = format!("00-{digits:0>32.32}-{digits:1>16.16}-00");
    TraceContext { parent: Some(parent.into()), state: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_trace_is_unsampled() {
        let context = unsampled_trace(&ToolCallId::generate());
        let parent = context.parent.unwrap();
        assert_eq!(parent.len(), 55, "{parent}");
        assert!(parent.ends_with("-00"), "{parent}");
        assert!(
            !rockbot_contracts::trace::id_of(&TraceContext { parent: Some(parent), state: None })
                .is_empty()
        );
    }
}
