//! The far end of a tool call: takes requests off the bus, runs them, answers.

mod admission;
mod alive;
mod answer;
mod beginning;
mod conversation;
mod journal;
mod meters;
mod progress;
mod running;
mod stats;
mod suspects;

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
    context::ToolContext,
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
    answer::{Answers, Asker, Ending},
    beginning::{Beginning, Rules, Started, id_in_use},
    conversation::ToolCalls,
    meters::Meters,
    progress::ProgressSender,
    running::{Running, Same, Ticket},
    suspects::{Moves, Queue, Taken},
};
pub use self::{
    admission::{AdmissionLimits, QueueLimits, queue_of_server},
    conversation::Conversation,
    journal::{CallJournal, JournalOptions},
    stats::HandlerStats,
};

/// Consumes requests to run tools, dispatches them to an executor, and answers.
///
/// A tool that fails is an answered, acknowledged request. Only a request that could not even be
/// answered is retried; one that could not be read is dead-lettered.
pub struct ToolInvokeHandler {
    executor: Arc<ToolExecutor>,
    bus: Arc<dyn Bus>,
    source: Arc<str>,
    askers: CallerPolicy,
    /// As whom the broker knows handlers.
    user: Option<Arc<str>>,
    conversation: Arc<dyn Conversation>,
    addressing: Option<Addressing>,
    admission: Arc<Admission>,
    /// Most deliveries in hand: those that run and those that wait for room.
    prefetch: u16,
    journal: Option<Arc<CallJournal>>,
    running: Running,
    moves: Moves,
    progress: ProgressSender,
    stats: Arc<HandlerStats>,
    meters: Meters,
}

/// Finds the registry's name of a tool of an MCP server: from the server's name, to be compared
/// without regard to case, and the tool's own name. Must not block.
pub type Addressing = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// How much a handler takes on, from whom, and what it remembers.
#[derive(Clone)]
pub struct InvokeOptions {
    /// Who may ask.
    pub askers: CallerPolicy,
    /// As whom the broker knows this handler and the others of its queue, where it does: what they
    /// pass on among themselves is signed with that name.
    pub user: Option<Arc<str>>,
    /// In which words calls come and go. Default: those of `tool.invoke`.
    pub conversation: Arc<dyn Conversation>,
    /// How a request for a tool of an MCP server finds it; nothing else does. Without one, such a
    /// request is answered `tool_not_found`.
    pub addressing: Option<Addressing>,
    /// How many calls run at once, and of which tools.
    pub admission: AdmissionLimits,
    /// Calls in hand beyond those that run. They are what agents take turns with and what waits
    /// behind a busy tool; other handlers can't have them. See [`InvokeOptions::with_backlog`].
    pub backlog: u16,
    /// What became of calls. Without one, a call that may have begun before and must not run twice
    /// is answered `outcome_unknown`.
    pub journal: Option<Arc<CallJournal>>,
}

impl InvokeOptions {
    /// At most `running` calls at once, sixteen times as many waiting, of anybody, no journal.
    #[must_use]
    pub fn running(running: u16) -> Self {
        let admission = AdmissionLimits::of(running.into());
        let options = Self {
            askers: CallerPolicy::Any,
            user: None,
            conversation: Arc::new(ToolCalls),
            addressing: None,
            admission,
            backlog: 0,
            journal: None,
        };
        options.with_backlog(running.saturating_mul(16))
    }

    /// The same with so many calls that wait. A tool by itself gets half of them, so that one that
    /// hangs does not keep the others' calls from coming in; on top its calls are refused.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u16) -> Self {
        self.backlog = backlog;
        self.admission.each.waiting = usize::from(backlog).div_ceil(2);
        self
    }

    /// The same with a journal.
    #[must_use]
    pub fn journaled(mut self, journal: Arc<CallJournal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// The same for tools of MCP servers.
    #[must_use]
    pub fn addressed(mut self, addressing: Addressing) -> Self {
        self.addressing = Some(addressing);
        self
    }

    /// The same in other words.
    #[must_use]
    pub fn in_words_of(mut self, conversation: impl Conversation + 'static) -> Self {
        self.conversation = Arc::new(conversation);
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
            .field("askers", &self.askers)
            .field("addressed", &self.addressing.is_some())
            .field("admission", &self.admission)
            .field("backlog", &self.backlog)
            .field("journal", &self.journal)
            .finish()
    }
}

/// A handler at work: its queues of requests and its queue of cancels.
#[derive(Debug)]
pub struct InvokeWorkers {
    requests: Worker,
    suspects: Worker,
    cancels: Worker,
    journal: Option<Arc<CallJournal>>,
}

impl ToolInvokeHandler {
    /// A handler called `service`, in the process `instance`, for anybody on the bus.
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
            askers: options.askers,
            user: options.user,
            executor,
            progress: ProgressSender::start(bus.clone()),
            bus,
            source: format!("{service}/{instance}").into(),
            conversation: options.conversation,
            addressing: options.addressing,
            admission: Admission::new(options.admission),
            journal: options.journal,
            running: Running::default(),
            moves: Moves::default(),
            stats: Arc::default(),
            meters: Meters::new(),
        })
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<HandlerStats> {
        &self.stats
    }

    /// What the calls of each tool came to so far, if its executor counts them.
    #[must_use]
    pub fn account(&self) -> Option<&Arc<CallAccount>> {
        self.executor.account()
    }

    /// How many calls run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.count()
    }

    /// Sets the metrics that say how busy it is, whenever it is called.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let handler = self.clone();
        move || handler.meters.look(&handler.load(), &handler.stats)
    }

    /// How busy it is now.
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

    /// Starts to work on the requests of `key`, and to listen for cancels.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        self: &Arc<Self>,
        key: &RoutingKey,
        instance: &InstanceId,
    ) -> Result<InvokeWorkers, ConsumeError> {
        let bus = self.bus.as_ref();
        // Cancels first: a call that can be taken can be cancelled.
        let cancels = Subscription::new(QueueSpec::exclusive(&tool_cancel(), instance), 64);
        let cancels = Worker::start(bus, cancels, Arc::new(Cancels(self.clone()))).await?;
        let from = |queue| Arc::new(Requests { handler: self.clone(), queue });
        // The queue for suspects is there before the first is moved to it, and is worked on after.
        let alone = QueueSpec::quarantine(key);
        let suspects = bus.consume(Subscription::new(alone.clone(), 1)).await?;
        let requests = Subscription::new(QueueSpec::work(key), self.prefetch);
        let requests = Worker::start(bus, requests, from(Queue::Requests)).await?;
        let suspects = Worker::from_consumer(suspects, &alone.name, from(Queue::Suspects));
        Ok(InvokeWorkers { requests, suspects, cancels, journal: self.journal.clone() })
    }

    async fn take(&self, taken: Taken<'_>) -> Settlement {
        let envelope = taken.envelope();
        let correlation_id = envelope.correlation_id.clone().unwrap_or_else(|| Arc::from(""));
        let reply_to = match &envelope.reply_to {
            Some(key) => Some(key).filter(|key| self.conversation.answers_at(key)).cloned(),
            None => self.conversation.default_reply(),
        };
        let Some(reply_to) = reply_to else {
            self.stats.count_unreadable();
            return Settlement::dead_letter("its reply-to is not an address for tool results");
        };
        let admitted = match taken.queue {
            Queue::Requests => self.askers.admit(envelope),
            Queue::Suspects => self.askers.admit_forwarded(envelope, self.user.as_deref()),
        };
        let name = match admitted {
            Ok(name) => name.unwrap_or_else(|| unknown_agent().clone()),
            Err(impostor) => {
                self.stats.count_unreadable();
                // The broker vouches for the name in it.
                warn!(%impostor, "refused a request");
                return Settlement::dead_letter(impostor.to_string());
            }
        };
        let mut asker = Asker { name, reply_to, correlation_id };
        let request = match self.conversation.read(envelope) {
            Ok(request) => request,
            Err(error) => return self.answers().unreadable(envelope, &asker, &error).await,
        };
        if asker.correlation_id.is_empty() {
            asker.correlation_id = request.tool_call_id.as_str().into();
        }
        if request.tool_name == REPLY_PROBE {
            return self.answers().sign_of_life(&request, &asker, envelope.remaining()).await;
        }
        let tool = self.find(envelope, &request);
        // Only a name of ours goes to the log: any other is outside text.
        let name = tool.as_ref().map_or("(not found)", |tool| tool.registration().name.as_str());
        let id = request.tool_call_id.as_str();
        let trace_id = Some(trace::id_of(&envelope.trace)).filter(|id| !id.is_empty());
        let span = info_span!("call", tool_call_id = id, tool = name, trace_id);
        self.serve(taken, &request, tool.as_deref(), &asker).instrument(span).await
    }

    async fn serve(
        &self,
        taken: Taken<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        asker: &Asker,
    ) -> Settlement {
        if taken.is_suspect() && !self.running.has(&request.tool_call_id) {
            match self.moves.carry_out(self.bus.as_ref(), taken, &asker.name).await {
                Ok(()) => {
                    self.stats.count_moved();
                    info!("handlers were lost with the call in hand; it runs alone");
                    return Settlement::Ack;
                }
                // Handing it back would count as one more delivery.
                Err(error) => warn!(%error, "a call that handlers were lost with can't be moved"),
            }
        }
        let since = Instant::now();
        self.meters.arrived(taken.envelope());
        let same = Same::call(request, taken.envelope().mcp_server.as_deref(), asker);
        let ticket = loop {
            match self.running.enter(&request.tool_call_id, &asker.reply_to, same) {
                Ticket::Entered(ticket) => break ticket,
                Ticket::Attached(running) => {
                    info!("the call is running here already");
                    let may_have_missed =
                        running.is_answering() && !taken.delivery.is_redelivered();
                    if !Box::pin(running.answered()).await {
                        return Settlement::Retry;
                    }
                    // The answer of the call that ran went to the same asker.
                    if !may_have_missed {
                        return Settlement::Ack;
                    }
                }
                Ticket::Conflict => {
                    let tool = tool.map(|tool| &*tool.registration().name);
                    let status = CallStatus::from_code(&id_in_use().code());
                    self.meters.ended(tool, status, since.elapsed());
                    let ended = Ending::failed(id_in_use());
                    return self.answers().give(request, asker, *ended).await;
                }
            }
        };
        let ended = self.run(taken, request, tool, asker, ticket.cancellation()).await;
        ticket.answering();
        let answering = Instant::now();
        if let Ending::Ran { ended, elapsed, .. } = &*ended {
            let took = answering - since;
            self.meters.started(took.saturating_sub(*elapsed));
            // What was refused did not run.
            if !elapsed.is_zero() {
                self.meters.ran(*elapsed);
            }
            let tool = tool.map(|tool| &*tool.registration().name);
            self.meters.ended(tool, CallStatus::from_outcome(ended), took);
        }
        let settlement = self.answers().give(request, asker, *ended).await;
        self.meters.replied(answering.elapsed());
        ticket.ended(settlement == Settlement::Ack);
        settlement
    }

    /// Starts to work on the requests of a queue beside that of [`Self::start`], such as those to
    /// this process alone. To be drained before the others.
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn start_also(self: &Arc<Self>, queue: QueueSpec) -> Result<Worker, ConsumeError> {
        let requests = Subscription::new(queue, self.prefetch);
        let handler = Requests { handler: self.clone(), queue: Queue::Requests };
        Worker::start(self.bus.as_ref(), requests, Arc::new(handler)).await
    }

    /// The tool that a request is for: of the server it names, else by its name.
    fn find(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
    ) -> Option<Arc<RegisteredTool>> {
        let registry = self.executor.registry();
        let Some(server) = &envelope.mcp_server else { return registry.get(&request.tool_name) };
        let name = self.addressing.as_ref()?(server, &request.tool_name)?;
        registry.get(&name)
    }

    async fn run(
        &self,
        taken: Taken<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        asker: &Asker,
        cancellation: CancellationToken,
    ) -> Box<Ending> {
        let mut context = self.context(taken.envelope(), request, asker, cancellation);
        if taken.envelope().mcp_server.is_some() {
            // The registry may have another tool of the name that the server's has.
            let Some(tool) = tool else {
                let name = request.tool_name.chars().take(128).collect();
                return Ending::failed(ToolFailure::NotFound { name });
            };
            context.tool_name = tool.registration().name.as_str().into();
        }
        let journal = self.journal.as_deref();
        let rules = Rules { moves: &self.moves, admission: &self.admission, journal };
        let began = {
            let beginning = Beginning::of(taken, rules, tool, request, &context);
            beginning.begin().await
        };
        let Started { permit, begun, may_have_run } = match began {
            Ok(started) => started,
            Err(ending) => return ending,
        };
        context.may_have_run = may_have_run;
        let arguments = request.arguments.as_str().into();
        let since = Instant::now();
        let ended = self.executor.execute(ToolCall { context, arguments }).await;
        drop(permit);
        let ended = ended.map_err(|failure| match may_have_run {
            true => failure.after_earlier_run(),
            false => failure,
        });
        Box::new(Ending::Ran { ended, elapsed: since.elapsed(), begun })
    }

    fn context(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
        asker: &Asker,
        cancellation: CancellationToken,
    ) -> ToolContext {
        let budget =
            envelope.remaining().map_or(ToolContext::DEFAULT_TIMEOUT, |left| left.min(MAX_BUDGET));
        ToolContext {
            tool_call_id: request.tool_call_id.clone(),
            tool_name: request.tool_name.as_str().into(),
            session_id: request.session_id.clone(),
            // Who asks is what the envelope says, never what the arguments say.
            agent: asker.name.clone(),
            deadline: tokio::time::Instant::now() + budget,
            cancellation,
            may_have_run: false,
            updates: self.progress.sink(request, &asker.reply_to, &self.source),
            // What the asker may use was decided where it asked.
            scope: ToolScope::everything(),
        }
    }

    fn answers(&self) -> Answers<'_> {
        Answers {
            bus: &self.bus,
            source: &self.source,
            conversation: self.conversation.as_ref(),
            stats: &self.stats,
            journal: self.journal.as_deref(),
        }
    }
}

impl InvokeWorkers {
    /// Stops taking requests, finishes and answers what is under way within `grace`, and then
    /// stops listening for cancels. Whether all of it ended in time.
    pub async fn drain(self, grace: Duration) -> bool {
        let (requests, suspects) =
            tokio::join!(self.requests.drain(grace), self.suspects.drain(grace));
        if let Some(journal) = &self.journal {
            journal.stop().await;
        }
        self.cancels.drain(Duration::from_secs(1)).await && requests && suspects
    }
}

struct Requests {
    handler: Arc<ToolInvokeHandler>,
    queue: Queue,
}

impl Handler for Requests {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.handler.take(Taken { delivery, queue: self.queue }))
    }
}

struct Cancels(Arc<ToolInvokeHandler>);

impl Handler for Cancels {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        match delivery.envelope().decode(Limits::default()) {
            Ok(cancel) => self.0.running.cancel(&cancel),
            Err(error) => {
                warn!("unreadable cancel");
                // It quotes what could not be read.
                debug!(%error, "unreadable cancel");
            }
        }
        // A cancel is for whoever runs the call; there is nothing to try again.
        Box::pin(std::future::ready(Settlement::Ack))
    }
}

/// No call runs longer, whatever its asker allows.
const MAX_BUDGET: Duration = Duration::from_secs(24 * 3600);

fn unknown_agent() -> &'static AgentName {
    static UNKNOWN: std::sync::LazyLock<AgentName> = std::sync::LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "a constant that is a valid name")]
        AgentName::new("unknown").expect("a name")
    });
    &UNKNOWN
}

impl std::fmt::Debug for ToolInvokeHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolInvokeHandler")
            .field("source", &self.source)
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By what ADR 0026 says: with all layers, and without what the tool keeps.
    #[test]
    fn a_call_that_runs_keeps_little() {
        fn size<A, B, F: Future>(_: impl FnOnce(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let size = size::<&'static ToolInvokeHandler, Taken<'static>, _>(ToolInvokeHandler::take);
        assert!(size <= 2304, "{size} bytes");
    }
}
