//! Probe of the reply path: a call without effect, repeated every 5 s.
//!
//! A process can be connected and publish, and still receive no replies: its reply queue may be gone, or
//! its requests may have no consumer. Calls then fail by timeout, minutes later. The probe detects it
//! within 15 s.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
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
    /// Starts to send a probe every 5 s to the consumers of each key that `keys` returns at that time, at the
    /// same time. Sets `rockbot_reply_probe_up`, and logs when replies stop and when they arrive again.
    ///
    /// One reply shows that replies arrive: other probes wait in a long queue, or nothing consumes it. A reply
    /// to another request meanwhile shows it too.
    #[must_use]
    pub fn start(
        requester: Arc<Requester>,
        keys: impl Fn() -> Vec<RoutingKey> + Send + 'static,
    ) -> Self {
        let (sender, state) = watch::channel(ReplyState::Unknown);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                probe_all(&requester, &keys(), |now| report(sender.send_replace(now), now)).await;
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

/// Sends a probe to each key and waits for all replies, so that none comes late. Reports the first reply at
/// once, and missing ones only when none arrived; nothing if no result is conclusive.
async fn probe_all(requester: &Requester, keys: &[RoutingKey], mut report: impl FnMut(ReplyState)) {
    let mut probes: FuturesUnordered<_> = keys.iter().map(|key| probe(requester, key)).collect();
    let mut result = None;
    while let Some(next) = probes.next().await {
        if result != Some(ReplyState::Arriving) && next.is_some() {
            result = next;
            if next == Some(ReplyState::Arriving) {
                report(ReplyState::Arriving);
            }
        }
    }
    if result == Some(ReplyState::Missing) {
        report(ReplyState::Missing);
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
    use rockbot_bus::{Bus, MemoryBus, Publication, Settlement, Subscription};
    use rockbot_contracts::{AgentName, InstanceId, QueueSpec, topology::ReplyAddress};
    use tokio::time::timeout;

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

    /// Replies to the requests with `key` as `user`.
    async fn serve(bus: MemoryBus, key: RoutingKey, user: &'static str) {
        let subscription = Subscription::new(QueueSpec::work(&key), 4);
        let mut requests = bus.consume(subscription).await.unwrap();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let envelope = request.envelope();
                let id = envelope.correlation_id.clone().unwrap();
                let to = envelope.reply_to.clone().unwrap();
                let mut reply = Envelope::raw("ToolError", Vec::new()).with_correlation_id(id);
                reply.user_id = Some(user.into());
                bus.publish(Publication::mandatory(to, reply)).await.unwrap();
                request.settle(Settlement::Ack).await.unwrap();
            }
        });
    }

    fn pool_key(name: &str) -> RoutingKey {
        RoutingKey::new(format!("tool.invoke.pool.{name}")).unwrap()
    }

    fn start(bus: &MemoryBus, keys: Vec<RoutingKey>) -> ReplyProbe {
        let agent = AgentName::new("assistant").unwrap();
        let address = ReplyAddress::new(agent, InstanceId::new("one").unwrap());
        let requester = Arc::new(Requester::new(Arc::new(bus.clone()), address));
        ReplyProbe::start(requester, move || keys.clone())
    }

    async fn first_state(probe: &ReplyProbe) -> ReplyState {
        *probe.state().wait_for(|state| *state != ReplyState::Unknown).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn reply_of_any_pool_shows_that_replies_arrive() {
        let bus = MemoryBus::new();
        // A queue without a consumer, which sorts first.
        let hung = Subscription::new(QueueSpec::work(&pool_key("a")), 1);
        let _hung = bus.consume(hung).await.unwrap();
        serve(bus.clone(), pool_key("web"), "rockbot.tool-handler.web").await;
        let started = Instant::now();
        let probe = start(&bus, vec![pool_key("a"), pool_key("web")]);
        assert_eq!(first_state(&probe).await, ReplyState::Arriving);
        assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
        let mut state = probe.state();
        let changed = timeout(INTERVAL * 5, state.wait_for(|now| *now == ReplyState::Missing));
        assert!(changed.await.is_err(), "one pool without replies is not the agent's fault");
    }

    #[tokio::test(start_paused = true)]
    async fn reply_of_a_foreign_user_does_not_count() {
        let bus = MemoryBus::new();
        serve(bus.clone(), pool_key("web"), "rockbot.tool-handler.files").await;
        let probe = start(&bus, vec![pool_key("web")]);
        assert_eq!(first_state(&probe).await, ReplyState::Missing);
    }
}
