//! Handler side of a tool call: consumes requests, runs their tools, and replies.

mod admission;
mod call_description;
mod call_metrics;
mod cancellations;
mod crash_check;
mod holders;
mod journal;
mod journal_lookup;
mod journal_options;
mod liveness;
mod options;
mod preflight;
mod progress;
mod protocol;
mod quarantine;
mod reply;
mod run;
mod running;
mod settle;
mod stats;
mod unreadable;
mod unstarted;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, SUBSCRIBE_TIMEOUT, Settlement, Subscription, Worker,
    subscribe,
};
use rockbot_contracts::{
    CallStages, Envelope, HandlerLoad, InstanceId, QueueKind, QueueSpec, RoutingKey,
    ToolInvokeRequest, envelope::whole_millis, identity::CallerPolicy, json::Limits,
    tool::REPLY_PROBE, topology::tool_cancel, trace,
};
use rockbot_tools::{
    executor::ToolExecutor, layers::CallAccount, registry::RegisteredTool, status::CallStatus,
};
use tokio::sync::watch;
use tracing::{Instrument, debug, info, info_span, warn};

use self::{
    admission::Admission,
    call_metrics::CallMetrics,
    progress::ProgressSender,
    quarantine::{Inbound, InboundQueue, QuarantineTransfers},
    reply::{CallOutcome, Caller, ReplyPublisher, id_in_use},
    running::{CallEntry, CallFingerprint, DuplicateEnd, RunningCalls},
};
pub use self::{
    admission::{AdmissionLimits, QueueLimits, policy_queue_key, server_queue_key},
    journal::CallJournal,
    journal_lookup::{JournaledCall, JournaledState, look_up},
    journal_options::JournalOptions,
    options::{ContinuationCheck, InvokeOptions, ToolResolver},
    protocol::CallProtocol,
    stats::HandlerStats,
};
use crate::{input_requester::InputRequester, unknown_agent::unknown_agent};

/// Maximum time for a call, even if its caller allows more.
const MAX_BUDGET: Duration = Duration::from_secs(24 * 3600);

/// Consumes tool requests, runs them through an executor, and replies.
///
/// The request of a failed tool is acknowledged like any other. A request is only requeued when its
/// reply can't be published, and only dead-lettered when it is unreadable or must not be served.
pub struct ToolInvokeHandler {
    executor: Arc<ToolExecutor>,
    bus: Arc<dyn Bus>,
    source: Arc<str>,
    callers: CallerPolicy,
    /// Broker user of the handlers that consume the same work queue.
    user: Option<Arc<str>>,
    protocol: Arc<dyn CallProtocol>,
    tool_resolver: Option<ToolResolver>,
    continuation: Option<ContinuationCheck>,
    admission: Arc<Admission>,
    /// Changes of the registry since the capacity was last divided among its tools.
    tool_changes: Mutex<watch::Receiver<u64>>,
    /// Maximum number of unsettled deliveries: those that run and those that wait for a permit.
    prefetch: u16,
    /// Maximum number of calls that run at once.
    capacity: usize,
    journal: Option<Arc<CallJournal>>,
    input: Option<Arc<InputRequester>>,
    running: RunningCalls,
    transfers: QuarantineTransfers,
    progress: ProgressSender,
    stats: Arc<HandlerStats>,
    metrics: CallMetrics,
}

/// Consumers of a started handler: requests, quarantined requests and cancel messages.
#[derive(Debug)]
pub struct InvokeWorkers {
    requests: Worker,
    quarantine: Worker,
    cancels: Worker,
    handler: Arc<ToolInvokeHandler>,
}

impl ToolInvokeHandler {
    /// Creates a handler of the service `service` in the process `instance`.
    #[must_use]
    pub fn new(
        executor: Arc<ToolExecutor>,
        bus: Arc<dyn Bus>,
        service: &str,
        instance: &InstanceId,
        options: InvokeOptions,
    ) -> Arc<Self> {
        let prefetch = options.prefetch();
        let mut tool_changes = executor.registry().subscribe();
        tool_changes.mark_changed();
        Arc::new(Self {
            capacity: options.admission.running,
            prefetch,
            tool_changes: Mutex::new(tool_changes),
            callers: options.callers,
            user: options.user,
            executor,
            progress: ProgressSender::start(bus.clone()),
            bus,
            source: format!("{service}/{instance}").into(),
            protocol: options.protocol,
            tool_resolver: options.tool_resolver,
            continuation: options.continuation,
            admission: Admission::new(options.admission),
            journal: options.journal,
            input: options.input,
            running: RunningCalls::default(),
            transfers: QuarantineTransfers::default(),
            stats: Arc::default(),
            metrics: CallMetrics::new(),
        })
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> &Arc<HandlerStats> {
        &self.stats
    }

    /// Returns the account of calls by tool, if the executor keeps one.
    #[must_use]
    pub fn account(&self) -> Option<&Arc<CallAccount>> {
        self.executor.account()
    }

    /// Returns the number of calls in progress, including those that wait for a permit.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.running.count()
    }

    /// Returns a function that updates the handler's gauges.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let handler = self.clone();
        move || handler.metrics.report(&handler.load(), &handler.stats)
    }

    /// Returns the current load.
    #[must_use]
    pub fn load(&self) -> HandlerLoad {
        let (running, waiting) = self.admission.counts();
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let oldest = self.running.oldest().map(|age| age.as_millis());
        HandlerLoad {
            running: number(running),
            waiting: number(waiting),
            oldest_ms: oldest.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            capacity: Some(number(self.capacity)),
        }
    }

    /// Starts to consume cancel messages, and the requests of `key` from its work queue and from its
    /// quarantine queue.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        self: &Arc<Self>,
        key: &RoutingKey,
        instance: &InstanceId,
    ) -> Result<InvokeWorkers, ConsumeError> {
        let bus = self.bus.as_ref();
        // Cancel messages are consumed first, so that every call that is accepted can be cancelled.
        let cancels = Subscription::new(QueueSpec::exclusive(&tool_cancel(), instance), 64);
        let cancels = Worker::start(bus, cancels, Arc::new(CancelHandler(self.clone()))).await?;
        let handler = |queue| Arc::new(RequestHandler { handler: self.clone(), queue });
        // The quarantine queue is declared before requests can be moved to it, but processed after.
        let quarantine = QueueSpec::quarantine(key);
        let quarantined = Subscription::new(quarantine.clone(), 1);
        let quarantined = subscribe(bus, quarantined, SUBSCRIBE_TIMEOUT).await?;
        let requests = Subscription::new(QueueSpec::work(key), self.prefetch);
        let requests = Worker::start(bus, requests, handler(InboundQueue::Work)).await?;
        let quarantine =
            Worker::from_consumer(quarantined, &quarantine.name, handler(InboundQueue::Quarantine));
        Ok(InvokeWorkers { requests, quarantine, cancels, handler: self.clone() })
    }

    /// Starts to consume the requests of another queue, such as the inbox of this process. The caller must
    /// drain the returned worker before the [`InvokeWorkers`].
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn start_worker(self: &Arc<Self>, queue: QueueSpec) -> Result<Worker, ConsumeError> {
        let inbound = match queue.kind {
            QueueKind::Exclusive => InboundQueue::Own,
            _ => InboundQueue::Work,
        };
        let requests = Subscription::new(queue, self.prefetch);
        let handler = RequestHandler { handler: self.clone(), queue: inbound };
        Worker::start(self.bus.as_ref(), requests, Arc::new(handler)).await
    }

    /// Validates and decodes a request, and processes it.
    async fn receive(&self, inbound: Inbound<'_>) -> Settlement {
        if inbound.is_lost() {
            return Settlement::Retry;
        }
        let envelope = inbound.envelope();
        let correlation_id = envelope.correlation_id.clone().unwrap_or_else(|| Arc::from(""));
        let reply_to = match &envelope.reply_to {
            Some(key) => Some(key).filter(|key| self.protocol.accepts_reply_key(key)).cloned(),
            None => self.protocol.default_reply_key(),
        };
        let Some(reply_to) = reply_to else {
            self.stats.count_unreadable();
            return Settlement::dead_letter("reply-to is not a tool-result address");
        };
        let admitted = match inbound.queue {
            InboundQueue::Work | InboundQueue::Own => self.callers.admit(envelope),
            InboundQueue::Quarantine => {
                self.callers.admit_forwarded(envelope, self.user.as_deref())
            }
        };
        let agent = match admitted {
            Ok(agent) => agent.unwrap_or_else(|| unknown_agent().clone()),
            Err(error) => {
                self.stats.count_unreadable();
                // Safe to log: the broker validated the user name in the error.
                warn!(%error, "request rejected");
                return Settlement::dead_letter(error.to_string());
            }
        };
        let mut caller = Caller { agent, reply_to, correlation_id };
        let request = match self.protocol.decode_request(envelope) {
            Ok(request) => request,
            Err(error) => {
                return Box::pin(self.reject_unreadable(inbound, &caller, &error)).await;
            }
        };
        if caller.correlation_id.is_empty() {
            caller.correlation_id = request.tool_call_id.as_str().into();
        }
        if request.tool_name == REPLY_PROBE {
            return self.replies().reply_to_probe(&request, &caller, envelope.remaining()).await;
        }
        self.follow_tools();
        let tool = self.find(envelope, &request);
        // Only registered names are logged: any other is untrusted text.
        let name = tool.as_ref().map_or("(not found)", |tool| tool.registration().name.as_str());
        let id = request.tool_call_id.as_str();
        let trace_id = Some(trace::id_of(&envelope.trace)).filter(|id| !id.is_empty());
        let span = info_span!("call", tool_call_id = id, tool = name, trace_id);
        self.process(inbound, &request, tool.as_deref(), &caller).instrument(span).await
    }

    /// Quarantines a call, or attaches it to the same running call, or runs it and replies.
    async fn process(
        &self,
        mut inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
    ) -> Settlement {
        if inbound.may_have_crashed() {
            let quarantined = self.quarantine(inbound, request, tool, caller);
            if let Some(settlement) = Box::pin(quarantined).await {
                return settlement;
            }
        }
        let since = Instant::now();
        let queued = self.metrics.record_queue_time(inbound.envelope());
        let server = inbound.envelope().mcp_server.as_deref();
        let fingerprint = CallFingerprint::new(request, server, caller);
        let guard = loop {
            match self.running.register(&request.tool_call_id, &caller.reply_to, fingerprint) {
                CallEntry::New(guard) => break guard,
                CallEntry::Duplicate(running) => {
                    info!("call is already running in this process");
                    inbound.saw_running = true;
                    let may_have_missed =
                        running.is_replying() && !inbound.delivery.is_redelivered();
                    match Box::pin(running.wait()).await {
                        DuplicateEnd::Replaced => return Settlement::Ack,
                        DuplicateEnd::Replied if !may_have_missed => return Settlement::Ack,
                        // Register again, so that the caller gets a reply: it may have reconnected and
                        // missed the one that was being published, or there was none. Requeueing this
                        // request would count as one more delivery.
                        DuplicateEnd::Replied | DuplicateEnd::NotReplied => {}
                    }
                }
                CallEntry::Conflict => {
                    let outcome = Box::pin(self.conflict(inbound, request, tool, caller)).await;
                    return Box::pin(self.refuse(request, tool, caller, outcome)).await;
                }
                // The journal then has the result for this caller, too.
                CallEntry::OtherAddress(running) if self.journal.is_some() => {
                    info!("call is already running in this process for another address");
                    inbound.saw_running = true;
                    if Box::pin(running.wait()).await == DuplicateEnd::Replaced {
                        return Settlement::Ack;
                    }
                }
                CallEntry::OtherAddress(_) => {
                    let failure = id_in_use().into_possibly_executed();
                    let outcome = CallOutcome::failed(failure);
                    return Box::pin(self.refuse(request, tool, caller, outcome)).await;
                }
            }
        };
        let Some(outcome) = self.run(inbound, request, tool, caller, guard.cancellation()).await
        else {
            // A copy of the request in this process runs instead.
            guard.finish(false);
            debug!("call not started: its delivery was lost");
            return Settlement::Retry;
        };
        if let CallOutcome::Recorded(reply) = &*outcome
            && inbound.is_only_redelivered()
            && let Some(journal) = &self.journal
            && Box::pin(journal.was_replied(&reply.owner)).await
        {
            debug!("call ended before, and its reply was confirmed");
            guard.finish(true);
            return Settlement::Ack;
        }
        guard.start_reply();
        let replying = Instant::now();
        let mut stages = None;
        if let CallOutcome::Finished { result, elapsed, .. } = &*outcome {
            let took = replying - since;
            let start = took.saturating_sub(*elapsed);
            self.metrics.record_time_to_start(start);
            // Zero when the tool did not run.
            if !elapsed.is_zero() {
                self.metrics.record_run_time(*elapsed);
                stages = Some(CallStages {
                    queue_ms: queued.map(whole_millis),
                    start_ms: whole_millis(start),
                    run_ms: whole_millis(*elapsed),
                });
            }
            let tool = tool.map(|tool| &*tool.registration().name);
            self.metrics.record_call(tool, CallStatus::from_outcome(result), took);
        }
        let settlement = self.replies().reply(request, caller, *outcome, stages).await;
        self.metrics.record_reply_time(replying.elapsed());
        guard.finish(settlement == Settlement::Ack);
        settlement
    }

    /// Replies to a request whose id a running call has.
    async fn refuse(
        &self,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
        outcome: Box<CallOutcome>,
    ) -> Settlement {
        if let CallOutcome::Finished { result, .. } = &*outcome {
            let tool = tool.map(|tool| &*tool.registration().name);
            self.metrics.record_call(tool, CallStatus::from_outcome(result), Duration::ZERO);
        }
        self.replies().reply(request, caller, *outcome, None).await
    }

    /// Divides the capacity again if the registered tools have changed.
    fn follow_tools(&self) {
        let mut changes = self.tool_changes.lock();
        if changes.has_changed().unwrap_or(false) {
            changes.mark_unchanged();
            self.admission.set_tools(&self.executor.registry().all());
        }
    }

    /// Finds the tool of a request: at the MCP server that the envelope names, else by its name.
    fn find(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
    ) -> Option<Arc<RegisteredTool>> {
        let registry = self.executor.registry();
        let Some(server) = &envelope.mcp_server else { return registry.get(&request.tool_name) };
        let name = self.tool_resolver.as_ref()?(server, &request.tool_name)?;
        registry.get(&name)
    }

    fn replies(&self) -> ReplyPublisher<'_> {
        ReplyPublisher {
            bus: &self.bus,
            source: &self.source,
            protocol: self.protocol.as_ref(),
            stats: &self.stats,
            journal: self.journal.as_deref(),
        }
    }
}

impl InvokeWorkers {
    /// Waits until a queue is no longer consumed although nothing stopped its worker, see
    /// [`Worker::ended`].
    pub async fn ended(&self) {
        tokio::select! {
            () = self.requests.ended() => {}
            () = self.quarantine.ended() => {}
            () = self.cancels.ended() => {}
        }
    }

    /// Stops consuming requests, finishes the calls in progress within `grace`, and then stops
    /// consuming cancel messages. Returns whether all calls finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        let (requests, quarantine) =
            tokio::join!(self.requests.drain(grace), self.quarantine.drain(grace));
        if let Some(journal) = &self.handler.journal {
            if self.handler.running.all_replied() {
                journal.record_all_replied().await;
            }
            journal.stop().await;
        }
        self.cancels.drain(Duration::from_secs(1)).await && requests && quarantine
    }
}

struct RequestHandler {
    handler: Arc<ToolInvokeHandler>,
    queue: InboundQueue,
}

impl Handler for RequestHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.handler.receive(Inbound { delivery, queue: self.queue, saw_running: false }))
    }
}

struct CancelHandler(Arc<ToolInvokeHandler>);

impl Handler for CancelHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        let envelope = delivery.envelope();
        match envelope.decode(Limits::default()) {
            Ok(cancel) => self.0.running.cancel(&cancel, envelope.remaining()),
            Err(error) => {
                warn!("unreadable cancel message");
                // At debug level: the error quotes the message.
                debug!(%error, "unreadable cancel message");
            }
        }
        // Acknowledged in any case: cancel messages are never retried.
        Box::pin(std::future::ready(Settlement::Ack))
    }
}

impl std::fmt::Debug for ToolInvokeHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolInvokeHandler")
            .field("source", &self.source)
            .field("in_progress", &self.in_progress())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ADR 0026 sets the bound, with all layers and without the memory of the tool.
    #[test]
    fn running_call_has_small_future() {
        fn size<A, B, F: Future>(_: impl FnOnce(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let size =
            size::<&'static ToolInvokeHandler, Inbound<'static>, _>(ToolInvokeHandler::receive);
        assert!(size <= 2576, "{size} bytes");
    }
}
