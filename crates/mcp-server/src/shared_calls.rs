//! Running calls and recent results, by call id.
//!
//! A request that a client repeats joins the running call, or gets the recent result. Beyond that time, and in
//! other processes, the journal of the handler recognizes the call id.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rockbot_contracts::{Executed, ToolCallId};
use rockbot_tools::{ToolFailure, ToolResult};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::call_id::CallContent;

/// Time for which the outcome of a call is kept.
const RETENTION: Duration = Duration::from_secs(300);
/// Maximum number of kept outcomes.
const MAX_RECENT: usize = 512;
/// Maximum size of the kept outcomes together, in bytes of content.
const MAX_RECENT_BYTES: usize = 16 * 1024 * 1024;
/// Progress lines that wait for a slow client. The oldest are dropped.
const WAITING_LINES: usize = 64;

/// The outcome of a call.
pub type CallOutcome = Result<ToolResult, ToolFailure>;

/// The calls of all clients.
#[derive(Debug)]
pub(crate) struct SharedCalls {
    state: Arc<Mutex<State>>,
    tasks: TaskTracker,
    /// Maximum number of running calls of a client.
    limit: usize,
}

/// A request for a call.
#[derive(Debug)]
pub(crate) struct CallRequest {
    pub(crate) id: ToolCallId,
    pub(crate) client: Arc<str>,
    pub(crate) content: CallContent,
    /// Set if a repetition of the request can be recognized.
    pub(crate) may_repeat: bool,
    /// Time that the call runs on without a request that waits for it.
    pub(crate) grace: Duration,
}

/// The ends of a call that its tool uses.
#[derive(Debug)]
pub(crate) struct CallControl {
    pub(crate) cancellation: CancellationToken,
    pub(crate) progress: broadcast::Sender<Arc<str>>,
}

/// A call that a request waits for. A call without such a request is cancelled.
#[derive(Debug)]
pub(crate) struct JoinedCall {
    pub(crate) outcome: watch::Receiver<Option<Arc<CallOutcome>>>,
    pub(crate) progress: broadcast::Receiver<Arc<str>>,
    cancellation: CancellationToken,
    _waiter: Waiter,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<ToolCallId, Entry>,
    running: HashMap<Arc<str>, usize>,
    /// Finished calls, oldest first.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    content: CallContent,
    outcome: watch::Receiver<Option<Arc<CallOutcome>>>,
    progress: broadcast::Sender<Arc<str>>,
    waiters: watch::Sender<usize>,
    cancellation: CancellationToken,
}

#[derive(Debug)]
struct Recent {
    id: ToolCallId,
    expires: Instant,
    bytes: usize,
}

/// Counts a request that waits for a call.
#[derive(Debug)]
struct Waiter(watch::Sender<usize>);

impl Waiter {
    fn new(waiters: &watch::Sender<usize>) -> Self {
        waiters.send_modify(|count| *count += 1);
        Self(waiters.clone())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl SharedCalls {
    /// Creates an empty set with this limit of running calls of a client.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Arc::default(), tasks: TaskTracker::new(), limit }
    }

    /// Joins the call with the id of the request, if there is one.
    ///
    /// # Errors
    /// When the id belongs to another call.
    pub(crate) fn join_existing(
        &self,
        request: &CallRequest,
    ) -> Option<Result<JoinedCall, ToolFailure>> {
        let mut state = self.state.lock();
        state.remove_expired(Instant::now());
        state.calls.get(&request.id).map(|entry| entry.join(request))
    }

    /// Joins the call with the id of the request, or starts it.
    ///
    /// # Errors
    /// When the id belongs to another call, when the client has too many running calls, or after
    /// [`stop`](Self::stop).
    pub(crate) fn join<F>(
        &self,
        request: CallRequest,
        start: impl FnOnce(CallControl) -> F,
    ) -> Result<JoinedCall, ToolFailure>
    where
        F: Future<Output = CallOutcome> + Send + 'static,
    {
        let mut state = self.state.lock();
        state.remove_expired(Instant::now());
        if let Some(entry) = state.calls.get(&request.id) {
            return entry.join(&request);
        }
        if self.tasks.is_closed() {
            let message = "the server is shutting down".to_owned();
            return Err(ToolFailure::Unavailable { message, executed: Executed::No });
        }
        let running = state.running.entry(request.client.clone()).or_default();
        if *running >= self.limit {
            let message = format!("{} calls of this client are already running", self.limit);
            return Err(ToolFailure::Overloaded { message });
        }
        *running += 1;
        let (sender, outcome) = watch::channel(None);
        let entry = Entry {
            content: request.content,
            outcome,
            progress: broadcast::Sender::new(WAITING_LINES),
            waiters: watch::Sender::new(0),
            cancellation: CancellationToken::new(),
        };
        let joined = entry.joined();
        let waiters = entry.waiters.subscribe();
        let cancellation = entry.cancellation.clone();
        let call = start(CallControl {
            cancellation: cancellation.clone(),
            progress: entry.progress.clone(),
        });
        state.calls.insert(request.id.clone(), entry);
        drop(state);
        let grace = request.grace;
        let end = CallEnd { state: self.state.clone(), request, sender };
        let work = async move {
            let outcome = run(call, waiters, &cancellation, grace).await;
            end.finish(outcome);
        };
        // The call is in the trace of its first request.
        self.tasks.spawn(work.in_current_span());
        Ok(joined)
    }

    /// Rejects further calls, waits for the running ones until `limit`, and cancels those that are left.
    pub(crate) async fn stop(&self, limit: Duration) {
        self.tasks.close();
        if timeout(limit, self.tasks.wait()).await.is_err() {
            self.state.lock().calls.values().for_each(|entry| entry.cancellation.cancel());
            // A cancelled call reports within a few seconds whether its tool ran.
            let _ = timeout(Duration::from_secs(5), self.tasks.wait()).await;
        }
    }
}

impl JoinedCall {
    /// Cancels the call for all who wait for it.
    pub(crate) fn cancel(&self) {
        self.cancellation.cancel();
    }
}

impl Entry {
    fn join(&self, request: &CallRequest) -> Result<JoinedCall, ToolFailure> {
        if self.content == request.content {
            return Ok(self.joined());
        }
        let reason =
            "the key of this call was used for another tool or other arguments; use a new one";
        Err(ToolFailure::NotPermitted { reason: reason.to_owned() })
    }

    fn joined(&self) -> JoinedCall {
        JoinedCall {
            outcome: self.outcome.clone(),
            progress: self.progress.subscribe(),
            cancellation: self.cancellation.clone(),
            _waiter: Waiter::new(&self.waiters),
        }
    }
}

impl State {
    fn remove_expired(&mut self, now: Instant) {
        let is_over = |state: &Self, oldest: &Recent| {
            oldest.expires <= now
                || state.recent.len() > MAX_RECENT
                || state.recent_bytes > MAX_RECENT_BYTES
        };
        while self.recent.front().is_some_and(|oldest| is_over(self, oldest)) {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= oldest.bytes;
            self.calls.remove(&oldest.id);
        }
    }

    fn end(&mut self, request: &CallRequest, outcome: Option<&CallOutcome>) {
        if let hash_map::Entry::Occupied(mut running) = self.running.entry(request.client.clone()) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        // A call that did not run may be made again.
        let kept = outcome.filter(|outcome| match outcome {
            Ok(_) => request.may_repeat,
            Err(failure) => request.may_repeat && failure.executed() != Executed::No,
        });
        let Some(outcome) = kept else {
            self.calls.remove(&request.id);
            return;
        };
        let bytes = outcome.as_ref().map_or(0, ToolResult::bytes);
        let expires = Instant::now() + RETENTION;
        self.recent.push_back(Recent { id: request.id.clone(), expires, bytes });
        self.recent_bytes += bytes;
        self.remove_expired(Instant::now());
    }
}

/// Publishes the outcome of a call. Dropped without an outcome, it removes the call.
struct CallEnd {
    state: Arc<Mutex<State>>,
    request: CallRequest,
    sender: watch::Sender<Option<Arc<CallOutcome>>>,
}

impl CallEnd {
    fn finish(self, outcome: CallOutcome) {
        self.sender.send_replace(Some(Arc::new(outcome)));
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        let outcome = self.sender.borrow().clone();
        self.state.lock().end(&self.request, outcome.as_deref());
    }
}

/// Runs a call, and cancels it when no request has waited for it for `grace`.
async fn run(
    call: impl Future<Output = CallOutcome>,
    mut waiters: watch::Receiver<usize>,
    cancellation: &CancellationToken,
    grace: Duration,
) -> CallOutcome {
    let mut call = pin!(call);
    tokio::select! {
        outcome = &mut call => return outcome,
        () = abandoned(&mut waiters, grace) => cancellation.cancel(),
    }
    call.await
}

/// Waits until no request has waited for a call for `grace`.
async fn abandoned(waiters: &mut watch::Receiver<usize>, grace: Duration) {
    while waiters.wait_for(|count| *count == 0).await.is_ok() {
        let joined = timeout(grace, waiters.wait_for(|count| *count > 0)).await;
        if !matches!(joined, Ok(Ok(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn request(id: &str, content: &str, grace: Duration) -> CallRequest {
        CallRequest {
            id: ToolCallId::new(id).unwrap(),
            client: "client".into(),
            content: CallContent::new("tool", content),
            may_repeat: true,
            grace,
        }
    }

    async fn outcome(mut call: JoinedCall) -> String {
        let outcome = call.outcome.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        match &*outcome {
            Ok(result) => result.to_text().into_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    /// A call that ends when it is cancelled.
    async fn until_cancelled(control: CallControl) -> CallOutcome {
        control.cancellation.cancelled().await;
        Err(ToolFailure::Cancelled { executed: Executed::Yes })
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_request_joins_call_and_gets_recent_result() {
        let calls = SharedCalls::new(4);
        let runs = Arc::new(AtomicUsize::new(0));
        let (release, released) = watch::channel(false);
        let join = |content: &str| {
            let (runs, mut released) = (runs.clone(), released.clone());
            calls.join(request("1", content, Duration::ZERO), move |_| async move {
                runs.fetch_add(1, Ordering::Relaxed);
                let _ = released.wait_for(|released| *released).await;
                Ok(ToolResult::text("done"))
            })
        };
        let (first, second) = (join("a").unwrap(), join("a").unwrap());
        assert!(matches!(join("b"), Err(ToolFailure::NotPermitted { .. })));
        release.send_replace(true);
        assert_eq!((outcome(first).await, outcome(second).await), ("done".into(), "done".into()));
        assert_eq!(outcome(join("a").unwrap()).await, "done");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        tokio::time::advance(RETENTION).await;
        assert_eq!(outcome(join("a").unwrap()).await, "done");
        assert_eq!(runs.load(Ordering::Relaxed), 2, "the outcome expired");
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_call_is_cancelled_after_grace() {
        let calls = SharedCalls::new(4);
        let grace = Duration::from_secs(30);
        let first = calls.join(request("1", "", grace), until_cancelled).unwrap();
        drop(first);
        tokio::time::sleep(grace / 2).await;
        let second = calls.join(request("1", "", grace), until_cancelled).unwrap();
        let mut watched = second.outcome.clone();
        tokio::time::sleep(grace * 2).await;
        assert!(watched.borrow().is_none(), "a request waits for it");
        drop(second);
        let started = Instant::now();
        watched.wait_for(Option::is_some).await.unwrap();
        assert_eq!(started.elapsed(), grace);
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_did_not_run_is_made_again() {
        let calls = SharedCalls::new(4);
        let failed = calls.join(request("1", "", Duration::ZERO), |_| async {
            Err(ToolFailure::Overloaded { message: "full".to_owned() })
        });
        assert_eq!(outcome(failed.unwrap()).await, "overloaded: full");
        calls.stop_when_idle().await;
        let again = calls
            .join(request("1", "", Duration::ZERO), |_| async { Ok(ToolResult::text("done")) });
        assert_eq!(outcome(again.unwrap()).await, "done");
    }

    #[tokio::test(start_paused = true)]
    async fn running_calls_of_a_client_are_limited() {
        let calls = SharedCalls::new(1);
        let first = calls.join(request("1", "", Duration::ZERO), until_cancelled).unwrap();
        let second = calls.join(request("2", "", Duration::ZERO), until_cancelled);
        assert!(matches!(second, Err(ToolFailure::Overloaded { .. })));
        let mut watched = first.outcome.clone();
        first.cancel();
        watched.wait_for(Option::is_some).await.unwrap();
        calls.stop_when_idle().await;
        assert!(calls.join(request("2", "", Duration::ZERO), until_cancelled).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn stop_cancels_calls_after_its_limit() {
        let calls = SharedCalls::new(4);
        let call = calls.join(request("1", "", Duration::ZERO), until_cancelled).unwrap();
        calls.stop(Duration::from_secs(1)).await;
        assert_eq!(outcome(call).await, "cancelled");
        let late = calls.join(request("2", "", Duration::ZERO), until_cancelled);
        assert!(matches!(late, Err(ToolFailure::Unavailable { executed: Executed::No, .. })));
    }

    impl SharedCalls {
        /// Waits until no call runs.
        async fn stop_when_idle(&self) {
            while !self.tasks.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
}
