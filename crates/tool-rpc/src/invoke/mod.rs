//! Handler side of a tool call: consumes requests, runs their tools, and replies.

mod admission;
mod call_metrics;
mod journal;
mod liveness;
mod preflight;
mod progress;
mod protocol;
mod quarantine;
mod reply;
mod running;
mod stats;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, ConsumeError, Delivery, Handler, Settlement, Subscription, Worker};
use rockbot_contracts::{
    AgentName, Envelope, HandlerLoad, InstanceId, QueueSpec, RoutingKey, ToolInvokeRequest,
    identity::CallerPolicy, json::Limits, tool::REPLY_PROBE, topology::tool_cancel, trace,
};
use rockbot_tools::{
    context::{ApprovalTime, ToolContext},
    executor::ToolExecutor,
    failure::ToolFailure,
    layers::{CallAccount, ToolCall},
    registry::RegisteredTool,
    scope::ToolScope,
    status::CallStatus,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use self::{
    admission::Admission,
    call_metrics::CallMetrics,
    preflight::{Preflight, PreflightDeps, ReadyCall, id_in_use},
    progress::ProgressSender,
    protocol::ToolCallProtocol,
    quarantine::{Inbound, InboundQueue, QuarantineTransfers},
    reply::{CallOutcome, Caller, ReplyPublisher},
    running::{CallEntry, CallFingerprint, RunningCalls},
};
pub use self::{
    admission::{AdmissionLimits, QueueLimits, server_queue_key},
    journal::{CallJournal, JournalOptions},
    protocol::CallProtocol,
    stats::HandlerStats,
};

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
    admission: Arc<Admission>,
    /// Maximum number of unsettled deliveries: those that run and those that wait for a permit.
    prefetch: u16,
    journal: Option<Arc<CallJournal>>,
    running: RunningCalls,
    transfers: QuarantineTransfers,
    progress: ProgressSender,
    stats: Arc<HandlerStats>,
    metrics: CallMetrics,
}

/// Returns the registry's name of an MCP server's tool, from the server's name, which is compared
/// case-insensitively, and the tool's name at the server. Must not block.
pub type ToolResolver = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// Options of a [`ToolInvokeHandler`].
#[derive(Clone)]
pub struct InvokeOptions {
    /// Callers whose requests are accepted.
    pub callers: CallerPolicy,
    /// Broker user of this handler and of the others that consume the same work queue; `None` if the
    /// broker has no users. Requests that these handlers forward to each other carry it.
    pub user: Option<Arc<str>>,
    /// Message types of requests and results. The default is those of `tool.invoke`.
    pub protocol: Arc<dyn CallProtocol>,
    /// Finds the tools of MCP servers. If `None`, a request for one fails with `tool_not_found`.
    pub tool_resolver: Option<ToolResolver>,
    /// Bounds on the calls that run at once, in total and per concurrency group of tools.
    pub admission: AdmissionLimits,
    /// Maximum number of unsettled requests beyond the running calls. Fair scheduling chooses among them,
    /// and calls of a busy tool wait there; other handlers can't consume them. See
    /// [`InvokeOptions::with_backlog`].
    pub backlog: u16,
    /// Journal of calls. If `None`, a call that may have started before and is not idempotent fails with
    /// `outcome_unknown`.
    pub journal: Option<Arc<CallJournal>>,
}

impl InvokeOptions {
    /// Returns options for `concurrency` calls at once, a backlog of sixteen times as many, any caller,
    /// and no journal.
    #[must_use]
    pub fn new(concurrency: u16) -> Self {
        let admission = AdmissionLimits::new(concurrency.into());
        let options = Self {
            callers: CallerPolicy::Any,
            user: None,
            protocol: Arc::new(ToolCallProtocol),
            tool_resolver: None,
            admission,
            backlog: 0,
            journal: None,
        };
        options.with_backlog(concurrency.saturating_mul(16))
    }

    /// Sets the number of waiting calls. A tool that is in no shared concurrency group gets half of them, so
    /// that a hung tool does not fill the backlog; its further calls fail with `overloaded`.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u16) -> Self {
        self.backlog = backlog;
        self.admission.per_tool.waiting = usize::from(backlog).div_ceil(2);
        self
    }

    /// Sets the journal.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<CallJournal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Sets the resolver of MCP servers' tools.
    #[must_use]
    pub fn with_tool_resolver(mut self, tool_resolver: ToolResolver) -> Self {
        self.tool_resolver = Some(tool_resolver);
        self
    }

    /// Sets the message types of requests and results.
    #[must_use]
    pub fn with_protocol(mut self, protocol: impl CallProtocol + 'static) -> Self {
        self.protocol = Arc::new(protocol);
        self
    }

    fn prefetch(&self) -> u16 {
        let running = u16::try_from(self.admission.running).unwrap_or(u16::MAX);
        running.saturating_add(self.backlog).max(1)
    }
}

impl std::fmt::Debug for InvokeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InvokeOptions")
            .field("callers", &self.callers)
            .field("tool_resolver", &self.tool_resolver.is_some())
            .field("admission", &self.admission)
            .field("backlog", &self.backlog)
            .field("journal", &self.journal)
            .finish()
    }
}

/// Consumers of a started handler: requests, quarantined requests and cancel messages.
#[derive(Debug)]
pub struct InvokeWorkers {
    requests: Worker,
    quarantine: Worker,
    cancels: Worker,
    journal: Option<Arc<CallJournal>>,
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
        Arc::new(Self {
            prefetch: options.prefetch(),
            callers: options.callers,
            user: options.user,
            executor,
            progress: ProgressSender::start(bus.clone()),
            bus,
            source: format!("{service}/{instance}").into(),
            protocol: options.protocol,
            tool_resolver: options.tool_resolver,
            admission: Admission::new(options.admission),
            journal: options.journal,
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
        let quarantined = bus.consume(Subscription::new(quarantine.clone(), 1)).await?;
        let requests = Subscription::new(QueueSpec::work(key), self.prefetch);
        let requests = Worker::start(bus, requests, handler(InboundQueue::Work)).await?;
        let quarantine =
            Worker::from_consumer(quarantined, &quarantine.name, handler(InboundQueue::Quarantine));
        Ok(InvokeWorkers { requests, quarantine, cancels, journal: self.journal.clone() })
    }

    /// Starts to consume the requests of another queue, such as the inbox of this process. The caller must
    /// drain the returned worker before the [`InvokeWorkers`].
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn start_worker(self: &Arc<Self>, queue: QueueSpec) -> Result<Worker, ConsumeError> {
        let requests = Subscription::new(queue, self.prefetch);
        let handler = RequestHandler { handler: self.clone(), queue: InboundQueue::Work };
        Worker::start(self.bus.as_ref(), requests, Arc::new(handler)).await
    }

    /// Validates and decodes a request, and processes it.
    async fn receive(&self, inbound: Inbound<'_>) -> Settlement {
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
            InboundQueue::Work => self.callers.admit(envelope),
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
        let request = match self.protocol.read(envelope) {
            Ok(request) => request,
            Err(error) => {
                return self.replies().reject_unreadable(envelope, &caller, &error).await;
            }
        };
        if caller.correlation_id.is_empty() {
            caller.correlation_id = request.tool_call_id.as_str().into();
        }
        if request.tool_name == REPLY_PROBE {
            return self.replies().reply_to_probe(&request, &caller, envelope.remaining()).await;
        }
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
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
    ) -> Settlement {
        if inbound.needs_quarantine() && !self.running.contains(&request.tool_call_id) {
            match self.transfers.transfer(self.bus.as_ref(), inbound, &caller.agent).await {
                Ok(()) => {
                    self.stats.count_quarantined();
                    info!("call moved to the quarantine queue after lost handlers");
                    return Settlement::Ack;
                }
                // Requeueing it would count as one more delivery, so it runs here.
                Err(error) => warn!(%error, "call not moved to the quarantine queue"),
            }
        }
        let since = Instant::now();
        self.metrics.record_queue_time(inbound.envelope());
        let server = inbound.envelope().mcp_server.as_deref();
        let fingerprint = CallFingerprint::new(request, server, caller);
        let guard = loop {
            match self.running.register(&request.tool_call_id, &caller.reply_to, fingerprint) {
                CallEntry::New(guard) => break guard,
                CallEntry::Duplicate(running) => {
                    info!("call is already running in this process");
                    let may_have_missed =
                        running.is_replying() && !inbound.delivery.is_redelivered();
                    if !Box::pin(running.wait()).await {
                        return Settlement::Retry;
                    }
                    // A request re-sent while the reply was being published may come from a caller that
                    // reconnected and missed it; register again, so that it gets a reply.
                    if !may_have_missed {
                        return Settlement::Ack;
                    }
                }
                CallEntry::Conflict => {
                    let tool = tool.map(|tool| &*tool.registration().name);
                    let status = CallStatus::from_code(&id_in_use().code());
                    self.metrics.record_call(tool, status, since.elapsed());
                    let outcome = CallOutcome::failed(id_in_use());
                    return self.replies().reply(request, caller, *outcome).await;
                }
            }
        };
        let outcome = self.run(inbound, request, tool, caller, guard.cancellation()).await;
        guard.start_reply();
        let replying = Instant::now();
        if let CallOutcome::Finished { result, elapsed, .. } = &*outcome {
            let took = replying - since;
            self.metrics.record_time_to_start(took.saturating_sub(*elapsed));
            // Zero when the tool did not run.
            if !elapsed.is_zero() {
                self.metrics.record_run_time(*elapsed);
            }
            let tool = tool.map(|tool| &*tool.registration().name);
            self.metrics.record_call(tool, CallStatus::from_outcome(result), took);
        }
        let settlement = self.replies().reply(request, caller, *outcome).await;
        self.metrics.record_reply_time(replying.elapsed());
        guard.finish(settlement == Settlement::Ack);
        settlement
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

    async fn run(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
        cancellation: CancellationToken,
    ) -> Box<CallOutcome> {
        let mut context = self.context(inbound.envelope(), request, caller, cancellation);
        if inbound.envelope().mcp_server.is_some() {
            // The registry may have a different tool with the name that the server uses.
            let Some(tool) = tool else {
                let name = request.tool_name.chars().take(128).collect();
                return CallOutcome::failed(ToolFailure::NotFound { name });
            };
            context.tool_name = tool.registration().name.as_str().into();
        }
        let journal = self.journal.as_deref();
        let deps =
            PreflightDeps { transfers: &self.transfers, admission: &self.admission, journal };
        let checked = {
            let preflight = Preflight::new(inbound, deps, tool, request, &context);
            preflight.check().await
        };
        let ReadyCall { permit, entry, may_have_run } = match checked {
            Ok(ready) => ready,
            Err(outcome) => return outcome,
        };
        context.may_have_run = may_have_run;
        let arguments = request.arguments.as_str().into();
        let since = Instant::now();
        let result = self.executor.execute(ToolCall { context, arguments }).await;
        drop(permit);
        let result = result
            .map_err(|failure| if may_have_run { failure.after_earlier_run() } else { failure });
        Box::new(CallOutcome::Finished { result, elapsed: since.elapsed(), entry })
    }

    fn context(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
        caller: &Caller,
        cancellation: CancellationToken,
    ) -> ToolContext {
        let budget =
            envelope.remaining().map_or(ToolContext::DEFAULT_TIMEOUT, |left| left.min(MAX_BUDGET));
        ToolContext {
            tool_call_id: request.tool_call_id.clone(),
            tool_name: request.tool_name.as_str().into(),
            session_id: request.session_id.clone(),
            // The caller comes from the envelope, never from the arguments.
            agent: caller.agent.clone(),
            deadline: tokio::time::Instant::now() + budget,
            cancellation,
            may_have_run: false,
            updates: self.progress.sink(request, &caller.reply_to, &self.source),
            // The caller's process has checked which tools the caller may use.
            scope: ToolScope::everything(),
            approval_time: ApprovalTime::default(),
        }
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
    /// Stops consuming requests, finishes the calls in progress within `grace`, and then stops
    /// consuming cancel messages. Returns whether all calls finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        let (requests, quarantine) =
            tokio::join!(self.requests.drain(grace), self.quarantine.drain(grace));
        if let Some(journal) = &self.journal {
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
        Box::pin(self.handler.receive(Inbound { delivery, queue: self.queue }))
    }
}

struct CancelHandler(Arc<ToolInvokeHandler>);

impl Handler for CancelHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        match delivery.envelope().decode(Limits::default()) {
            Ok(cancel) => self.0.running.cancel(&cancel),
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

fn unknown_agent() -> &'static AgentName {
    static UNKNOWN: std::sync::LazyLock<AgentName> = std::sync::LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "a constant that is a valid name")]
        AgentName::new("unknown").expect("a valid name")
    });
    &UNKNOWN
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
        assert!(size <= 2304, "{size} bytes");
    }
}
