//! The notifications of one target, in order.
//!
//! A delivery begins with the task as it is, so that a process that goes on after another one needs no record of
//! what was delivered. Parts of the answer are not delivered: a part that arrives twice would be appended twice.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use metrics::counter;
use rockbot_store::{Key, Lease, LeaseError, LeaseRenewal};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    super::{
        A2a,
        caller::Caller,
        followed_task::FollowedTask,
        operations::{add_requests, recorded},
        push::{Push, PushEntry},
        state::TaskState,
        view::TaskView,
    },
    attempt::{Attempt, notify},
};
use crate::{a2a_parts::PushOptions, clock::now_ms};

/// Longest delay before a task is read again whose agent does not respond.
const MAX_READ_DELAY: Duration = Duration::from_secs(30);
/// Time limit to release a lease. It expires otherwise.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a delivery ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All is delivered, the target or the task is gone, or the target is given up.
    Closed,
    /// The process stops.
    Stopped,
}

/// Delivers the notifications of one target.
pub(super) struct Delivery {
    a2a: Arc<A2a>,
    push: Arc<Push>,
    options: PushOptions,
    caller: Caller,
    entry: PushEntry,
    reads: Arc<Semaphore>,
    stop: CancellationToken,
    /// The state of the task that was delivered last.
    delivered: Option<Value>,
}

impl Delivery {
    pub(super) fn new(
        a2a: Arc<A2a>,
        push: Arc<Push>,
        options: PushOptions,
        entry: PushEntry,
        reads: Arc<Semaphore>,
        stop: CancellationToken,
    ) -> Self {
        let caller = entry.open.caller();
        Self { a2a, push, options, caller, entry, reads, stop, delivered: None }
    }

    /// Delivers until the end of the task, unless another process does.
    pub(super) async fn run(mut self) {
        let Some(lease) = self.acquire().await else { return };
        let released = CancellationToken::new();
        let renewal = LeaseRenewal::from_ttl(self.options.lease);
        let mut keeping = std::pin::pin!(lease.keep_alive_at(renewal, &released));
        let end = tokio::select! {
            _ = &mut keeping => {
                warn!(task_id = %self.entry.open.task, "lease of push notifications lost");
                return;
            }
            end = self.deliver() => end,
        };
        if end == End::Closed && self.push.records.close(&self.entry).await.is_err() {
            // Its last state is delivered again.
            warn!(task_id = %self.entry.open.task, "target of push notifications not closed");
        }
        released.cancel();
        if let Some(lease) = keeping.await {
            let _ = timeout(RELEASE_TIMEOUT, lease.release()).await;
        }
    }

    /// Returns the lease of the target, and reads its entry again, which another process may have closed.
    async fn acquire(&mut self) -> Option<Lease> {
        let key = Key::new(["gateway", "a2a-push-leases", &self.entry.name]).ok()?;
        let store = self.a2a.parts.store.clone();
        let owner = self.a2a.parts.instance.as_str();
        let acquired =
            timeout(self.options.lease, Lease::acquire(store, key, owner, self.options.lease));
        let lease = match acquired.await {
            Ok(Ok(lease)) => lease,
            Ok(Err(LeaseError::HeldBy { .. })) => return None,
            Ok(Err(error)) => {
                warn!(%error, "lease of push notifications not acquired");
                return None;
            }
            Err(_) => return None,
        };
        match self.push.records.reopened(&self.entry).await {
            Ok(Some(entry)) => self.entry = entry,
            Ok(None) | Err(_) => {
                let _ = timeout(RELEASE_TIMEOUT, lease.release()).await;
                return None;
            }
        }
        Some(lease)
    }

    async fn deliver(&mut self) -> End {
        let mut delays = self.delays(MAX_READ_DELAY.min(self.options.max_delay));
        loop {
            if let ControlFlow::Break(end) = self.follow().await {
                return end;
            }
            let delay = delays.next().unwrap_or(MAX_READ_DELAY);
            if self.stop.run_until_cancelled(sleep(delay)).await.is_none() {
                return End::Stopped;
            }
        }
    }

    /// Delivers the task as it is, and its events as long as the agent sends them.
    async fn follow(&mut self) -> ControlFlow<End> {
        let a2a = self.a2a.clone();
        let task = self.entry.open.task.clone();
        let stop = self.stop.clone();
        let read = stop.run_until_cancelled(self.reads.clone().acquire_owned()).await;
        let Some(Ok(permit)) = read else { return ControlFlow::Break(End::Stopped) };
        let mut task: FollowedTask = match recorded(&a2a, &self.caller, task.as_str()).await {
            Ok((task, _)) => task,
            Err(error) if error.is_unknown_task() => return ControlFlow::Break(End::Closed),
            Err(_) => return ControlFlow::Continue(()),
        };
        add_requests(&a2a, &self.caller, [&mut task]).await;
        drop(permit);
        let state = match task.view.state() {
            TaskState::Completed => task.view.to_json(),
            _ => task.view.summary(),
        };
        if self.delivered.as_ref() != Some(&state) {
            self.send(&json!({"task": state})).await?;
            self.delivered = Some(state);
        }
        while !task.view.state().is_terminal() {
            let stop = self.stop.clone();
            let Some(next) = stop.run_until_cancelled(task.next()).await else {
                return ControlFlow::Break(End::Stopped);
            };
            let Some(Ok(events)) = next else { return ControlFlow::Continue(()) };
            for event in whole_events(&task.view, events) {
                self.send(&event).await?;
                // The state that was delivered before is no longer the last one.
                self.delivered = None;
            }
        }
        ControlFlow::Break(End::Closed)
    }

    /// Delivers an event, with as many attempts as needed.
    async fn send(&mut self, event: &Value) -> ControlFlow<End> {
        let body = Bytes::from(event.to_string());
        let mut delays = self.delays(self.options.max_delay);
        loop {
            if self.stop.is_cancelled() {
                return ControlFlow::Break(End::Stopped);
            }
            if self.attempt(body.clone()).await? {
                return ControlFlow::Continue(());
            }
            let delay = delays.next().unwrap_or(self.options.max_delay);
            if self.stop.run_until_cancelled(sleep(delay)).await.is_none() {
                return ControlFlow::Break(End::Stopped);
            }
        }
    }

    /// Tries to deliver an event. Returns whether it was delivered.
    async fn attempt(&mut self, body: Bytes) -> ControlFlow<End, bool> {
        let open = &self.entry.open;
        let target = match self.push.records.get(&self.caller, &open.task, &open.target).await {
            Ok(Some(target)) => target,
            Ok(None) => return ControlFlow::Break(End::Closed),
            Err(_) => return ControlFlow::Continue(false),
        };
        let outcome = notify(self.push.client(), &target, body, open.trace.as_deref()).await;
        let failing_since_ms = open.failing_since_ms;
        match outcome {
            Attempt::Delivered => {
                count("delivered");
                if failing_since_ms.is_some() {
                    self.set_failing(None).await;
                }
                ControlFlow::Continue(true)
            }
            Attempt::Refused => {
                count("refused");
                warn!(task_id = %open.task, "push target given up: address not allowed");
                ControlFlow::Break(End::Closed)
            }
            Attempt::Failed => {
                count("failed");
                let since_ms = failing_since_ms.unwrap_or_else(now_ms);
                let failing = Duration::from_millis(now_ms().saturating_sub(since_ms));
                if failing >= self.options.give_up {
                    count("given_up");
                    warn!(task_id = %open.task, "push target given up: no successful attempt within the limit");
                    return ControlFlow::Break(End::Closed);
                }
                if failing_since_ms.is_none() {
                    self.set_failing(Some(since_ms)).await;
                }
                ControlFlow::Continue(false)
            }
        }
    }

    async fn set_failing(&mut self, since_ms: Option<u64>) {
        if self.push.records.set_failing(&mut self.entry, since_ms).await.is_err() {
            debug!(task_id = %self.entry.open.task, "failing target of push notifications not recorded");
            self.entry.open.failing_since_ms = since_ms;
        }
    }

    fn delays(&self, max: Duration) -> impl Iterator<Item = Duration> + use<> {
        ExponentialBuilder::new()
            .with_min_delay(self.options.first_delay)
            .with_max_delay(max)
            .without_max_times()
            .build()
    }
}

/// Returns the events with the whole answer before the end, instead of its parts.
fn whole_events(view: &TaskView, events: Vec<Value>) -> Vec<Value> {
    let is_part = |event: &Value| event.get("artifactUpdate").is_some();
    let mut whole: Vec<_> = events.into_iter().filter(|event| !is_part(event)).collect();
    if view.state() == TaskState::Completed
        && let Some(answer) = view.answer_event()
    {
        whole.insert(whole.len().saturating_sub(1), answer);
    }
    whole
}

fn count(outcome: &'static str) {
    counter!("rockbot_gateway_push_attempts_total", "outcome" => outcome).increment(1);
}
