//! Whether answers still arrive: a call that does nothing, again and again.
//!
//! A process can be connected, publish well, and wait in vain: when its queue of answers is gone, or
//! when nobody works on what it asks for. Calls then end by time-outs, minutes later. The probe knows
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

/// How often it asks.
const EVERY: Duration = Duration::from_secs(5);
/// How long it waits for an answer. A probe that was sent just before answers stopped may still be
/// answered, or be excused by the answer to another question; the next one is not. So the promise of
/// 15 s is three times this, with [`GRACE`].
const WITHIN: Duration = Duration::from_secs(4);
const GRACE: Duration = Duration::from_secs(1);

/// What the last probe showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    /// Nothing yet, or nobody is there to answer.
    Unknown,
    /// They arrive.
    Arrive,
    /// None came in time.
    Missing,
}

/// Probes until dropped.
#[derive(Debug)]
pub struct ReplyProbe {
    state: watch::Receiver<Replies>,
    task: JoinHandle<()>,
}

impl ReplyProbe {
    /// Asks whoever consumes `key` every 5 s. Sets `rockbot_reply_probe_up`, and logs when answers
    /// stop and when they come again.
    ///
    /// A probe that is not answered while answers to other questions arrive has only a long queue
    /// before it, and means nothing.
    #[must_use]
    pub fn start(requester: Arc<Requester>, key: RoutingKey) -> Self {
        let (sender, state) = watch::channel(Replies::Unknown);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let before = sender.borrow().to_owned();
                let now = probe(&requester, &key).await.unwrap_or(before);
                tell(before, now);
                sender.send_replace(now);
            }
        });
        Self { state, task }
    }

    /// What it knows, and what comes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Replies> {
        self.state.clone()
    }

    /// Whether answers arrive, for whoever asks how the process is: not when the last probe failed.
    pub fn health_check(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
        let state = self.state.clone();
        move || {
            let told = match *state.borrow() {
                Replies::Missing => Err("answers to calls do not arrive".to_owned()),
                Replies::Unknown | Replies::Arrive => Ok(()),
            };
            Box::pin(std::future::ready(told))
        }
    }
}

impl Drop for ReplyProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks once. None when that shows nothing new.
async fn probe(requester: &Requester, key: &RoutingKey) -> Option<Replies> {
    let id = ToolCallId::generate();
    let question = ToolInvokeRequest {
        tool_call_id: id.clone(),
        tool_name: REPLY_PROBE.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::generate(),
    };
    let mut envelope = Envelope::from_payload(&question)
        .with_correlation_id(id.as_str())
        .with_source(requester.address().agent().as_str())
        .transient();
    envelope.trace = unrecorded(&id);
    let answers_before = requester.stats().answered();
    let asked = Instant::now();
    let answer = requester.request_unbounded(Request {
        key: key.clone(),
        envelope,
        timeout: WITHIN,
        grace: GRACE,
        on_interim: None,
        retry: false,
        abandoned: None,
    });
    match answer.await {
        Ok(_) => {
            histogram!("rockbot_reply_probe_duration_seconds").record(asked.elapsed());
            Some(Replies::Arrive)
        }
        // Others say so: no worker is there, or its queue is full.
        Err(RequestError::Publish(
            PublishError::Unroutable { .. } | PublishError::Refused { .. },
        )) => None,
        Err(_) if requester.stats().answered() > answers_before => Some(Replies::Arrive),
        Err(_) => Some(Replies::Missing),
    }
}

fn tell(before: Replies, now: Replies) {
    match now {
        Replies::Unknown => return,
        Replies::Arrive => gauge!("rockbot_reply_probe_up").set(1.0),
        Replies::Missing => gauge!("rockbot_reply_probe_up").set(0.0),
    }
    if now == Replies::Missing && before != now {
        error!("answers to calls do not arrive; see the queue of results and its consumer");
    }
    if now == Replies::Arrive && before == Replies::Missing {
        info!("answers to calls arrive again");
    }
}

/// A trace that nobody records: a probe every few seconds is nothing to look at.
fn unrecorded(id: &ToolCallId) -> TraceContext {
    let digits: String = id.as_str().chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.to_ascii_lowercase();
    let parent = format!("00-{digits:0>32.32}-{digits:1>16.16}-00");
    TraceContext { parent: Some(parent.into()), state: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_a_trace_that_nobody_records() {
        let context = unrecorded(&ToolCallId::generate());
        let parent = context.parent.unwrap();
        assert_eq!(parent.len(), 55, "{parent}");
        assert!(parent.ends_with("-00"), "{parent}");
        assert!(
            !rockbot_contracts::trace::id_of(&TraceContext { parent: Some(parent), state: None })
                .is_empty()
        );
    }
}
