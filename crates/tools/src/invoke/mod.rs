//! The far end of a tool call: takes requests off the bus, runs them, answers.

mod progress;
mod running;
mod stats;

use std::{sync::Arc, time::Instant};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, Publication, PublishError, Settlement, Subscription,
    Worker,
};
use rockbot_contracts::{
    AgentName, ContentTrust, Envelope, Executed, InstanceId, Message, QueueSpec, RoutingKey,
    ToolCallId, ToolError, ToolInvokeRequest, ToolInvokeResponse,
    identity::Askers,
    json::Limits,
    message::DecodeError,
    topology::{is_tool_reply, tool_cancel, tool_result_default},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::{
    executor::ToolExecutor, failure::ToolFailure, layers::ToolCall, result::ToolResult,
    tool::ToolContext,
};

pub use self::stats::HandlerStats;
use self::{
    progress::ProgressSender,
    running::{Running, Ticket},
};

/// Consumes requests to run tools, dispatches them to an executor, and answers.
///
/// A tool that fails is an answered, acknowledged request. Only a request that could not even be
/// answered is retried; one that could not be read is dead-lettered.
pub struct ToolInvokeHandler {
    executor: Arc<ToolExecutor>,
    bus: Arc<dyn Bus>,
    source: Arc<str>,
    askers: Askers,
    running: Running,
    progress: ProgressSender,
    stats: Arc<HandlerStats>,
}

/// Who asks, where the answer goes, and under which id it is waited for.
struct Asker {
    name: AgentName,
    reply_to: RoutingKey,
    correlation_id: Arc<str>,
}

/// A handler at work: its queue of requests and its queue of cancels.
#[derive(Debug)]
pub struct InvokeWorkers {
    requests: Worker,
    cancels: Worker,
}

impl ToolInvokeHandler {
    /// A handler called `service`, in the process `instance`, for anybody on the bus.
    #[must_use]
    pub fn new(
        executor: Arc<ToolExecutor>,
        bus: Arc<dyn Bus>,
        service: &str,
        instance: &InstanceId,
    ) -> Arc<Self> {
        Self::hearing(Askers::Anybody, executor, bus, service, instance)
    }

    /// The same for certain askers.
    #[must_use]
    pub fn hearing(
        askers: Askers,
        executor: Arc<ToolExecutor>,
        bus: Arc<dyn Bus>,
        service: &str,
        instance: &InstanceId,
    ) -> Arc<Self> {
        Arc::new(Self {
            askers,
            executor,
            progress: ProgressSender::start(bus.clone()),
            bus,
            source: format!("{service}/{instance}").into(),
            running: Running::default(),
            stats: Arc::default(),
        })
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<HandlerStats> {
        &self.stats
    }

    /// How many calls run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.count()
    }

    /// Starts to work on the requests of `key`, at most `concurrency` at once, and to listen for
    /// cancels.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        self: &Arc<Self>,
        key: &RoutingKey,
        concurrency: u16,
        instance: &InstanceId,
    ) -> Result<InvokeWorkers, ConsumeError> {
        let bus = self.bus.as_ref();
        // Cancels first: a call that can be taken can be cancelled.
        let cancels = Subscription::new(QueueSpec::exclusive(&tool_cancel(), instance), 64);
        let cancels = Worker::start(bus, cancels, Arc::new(Cancels(self.clone()))).await?;
        let requests = Subscription::new(QueueSpec::work(key), concurrency);
        let requests = Worker::start(bus, requests, self.clone()).await?;
        Ok(InvokeWorkers { requests, cancels })
    }

    async fn take(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let correlation_id = envelope.correlation_id.clone().unwrap_or_else(|| Arc::from(""));
        let reply_to = match &envelope.reply_to {
            // Answering elsewhere would let a caller make this process publish requests.
            Some(key) if !is_tool_reply(key) => {
                self.stats.count_unreadable();
                return Settlement::dead_letter("its reply-to is not an address for tool results");
            }
            Some(key) => key.clone(),
            None => tool_result_default(),
        };
        let name = match self.askers.admit(envelope) {
            Ok(name) => name.unwrap_or_else(|| unknown_agent().clone()),
            Err(impostor) => {
                self.stats.count_unreadable();
                return Settlement::dead_letter(impostor.to_string());
            }
        };
        let mut asker = Asker { name, reply_to, correlation_id };
        let request: ToolInvokeRequest = match envelope.decode(Limits::default()) {
            Ok(request) => request,
            Err(error) => return self.refuse_unreadable(envelope, &asker, &error).await,
        };
        if asker.correlation_id.is_empty() {
            asker.correlation_id = request.tool_call_id.as_str().into();
        }
        // Only a name of ours goes to the log: any other is outside text.
        let tool = self.executor.registry().get(&request.tool_name);
        let tool = tool.as_ref().map_or("(not found)", |tool| tool.registration().name.as_str());
        let span = info_span!("execute_tool", tool_call_id = ?request.tool_call_id.as_str(), tool);
        self.serve(delivery, request, asker).instrument(span).await
    }

    async fn refuse_unreadable(
        &self,
        envelope: &Envelope,
        asker: &Asker,
        error: &DecodeError,
    ) -> Settlement {
        self.stats.count_unreadable();
        warn!(correlation_id = &*asker.correlation_id, %error, "unreadable request");
        if let (Ok(id), Some(_)) = (ToolCallId::new(&*asker.correlation_id), &envelope.reply_to) {
            let answer = ToolFailure::invalid(error.to_string()).to_wire(id, "");
            // The dead letter keeps the request, whether or not somebody hears the answer.
            let _ = self.publish_answer(asker, &answer).await;
        }
        Settlement::dead_letter(error.to_string())
    }

    async fn serve(
        &self,
        delivery: &Delivery,
        request: ToolInvokeRequest,
        asker: Asker,
    ) -> Settlement {
        let envelope = delivery.envelope();
        let ticket = match self.running.enter(&request.tool_call_id, &asker.reply_to) {
            Ticket::Entered(ticket) => ticket,
            Ticket::Attached(running) => {
                // The answer of the call that runs goes to the same asker.
                info!("the call is running here already");
                return if running.answered().await { Settlement::Ack } else { Settlement::Retry };
            }
            Ticket::Conflict => {
                let reason = "another call with this id is running".to_owned();
                let failure = ToolFailure::NotPermitted { reason };
                return self.answer(&request, &asker, Instant::now(), Err(failure)).await;
            }
        };
        let began = Instant::now();
        let ended = match self.may_start(delivery, &request) {
            Ok(()) => {
                let context = self.context(envelope, &request, &asker, ticket.cancellation());
                let arguments = request.arguments.as_str().into();
                self.executor.execute(ToolCall { context, arguments }).await
            }
            Err(failure) => Err(failure),
        };
        let settlement = self.answer(&request, &asker, began, ended).await;
        ticket.ended(settlement == Settlement::Ack);
        settlement
    }

    /// Refuses what must not start: a call whose time is over, and one that another process may
    /// have begun and that must not run twice.
    fn may_start(
        &self,
        delivery: &Delivery,
        request: &ToolInvokeRequest,
    ) -> Result<(), ToolFailure> {
        let repeatable = || {
            let tool = self.executor.registry().get(&request.tool_name);
            tool.is_some_and(|tool| tool.registration().hints.may_run_again())
        };
        if delivery.envelope().remaining().is_some_and(|left| left.is_zero()) {
            let after = delivery.envelope().budget.map(|budget| budget.timeout);
            let executed = if delivery.is_redelivered() { Executed::Unknown } else { Executed::No };
            return Err(ToolFailure::TimedOut {
                after: after.unwrap_or_default(),
                executed,
                repeatable: repeatable(),
            });
        }
        if delivery.is_redelivered() && !repeatable() {
            let message = "the process that took the call was lost; it may have run".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message });
        }
        Ok(())
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
            updates: self.progress.sink(request, &asker.reply_to, &self.source),
        }
    }

    async fn answer(
        &self,
        request: &ToolInvokeRequest,
        asker: &Asker,
        began: Instant,
        ended: Result<ToolResult, ToolFailure>,
    ) -> Settlement {
        let elapsed = began.elapsed();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.stats.count(&ended);
        let id = request.tool_call_id.clone();
        let chars_in = request.arguments.len();
        let published = match ended {
            Ok(result) => {
                info!(
                    elapsed_ms,
                    chars_in,
                    chars_out = result.bytes(),
                    is_error = result.is_error,
                    "ran"
                );
                let answer = response(request, result, elapsed_ms);
                self.publish_answer(asker, &answer).await
            }
            Err(failure) => {
                info!(elapsed_ms, chars_in, code = %failure.code(), executed = %failure.executed(),
                    "failed");
                // In the words of tools and models.
                debug!(error = ?failure.chain().to_string(), "why it failed");
                let answer: ToolError = failure.to_wire(id.clone(), &request.tool_name);
                self.publish_answer(asker, &answer).await
            }
        };
        match published {
            Ok(()) => Settlement::Ack,
            Err(PublishError::Unroutable { .. }) => {
                self.stats.count_unheard();
                warn!("the asker is gone; its answer is dropped");
                Settlement::Ack
            }
            // An asker's own queue never refuses, so a monitor's did; running again won't help.
            Err(error @ PublishError::Refused { .. }) => {
                self.stats.count_unheard();
                warn!(%error, "a queue beside the asker's refused the answer");
                Settlement::Ack
            }
            Err(PublishError::TooLarge { bytes, limit }) => {
                let message = format!("the result has {bytes} bytes, over the limit of {limit}");
                let answer = ToolFailure::failed(message).to_wire(id.clone(), &request.tool_name);
                match self.publish_answer(asker, &answer).await {
                    Ok(()) => Settlement::Ack,
                    Err(_) => Settlement::Retry,
                }
            }
            Err(error) => {
                self.stats.count_unheard();
                warn!(%error, "could not answer; the request goes back");
                Settlement::Retry
            }
        }
    }

    async fn publish_answer<M: Message>(
        &self,
        asker: &Asker,
        answer: &M,
    ) -> Result<(), PublishError> {
        let envelope = Envelope::of(answer)
            .correlated(&asker.correlation_id)
            .from_source(&self.source)
            .trusted_as(ContentTrust::ToolOutput);
        self.bus.publish(Publication::mandatory(asker.reply_to.clone(), envelope)).await
    }
}

impl InvokeWorkers {
    /// Stops taking requests, finishes and answers what is under way within `grace`, and then
    /// stops listening for cancels. Whether all of it ended in time.
    pub async fn drain(self, grace: std::time::Duration) -> bool {
        let drained = self.requests.drain(grace).await;
        self.cancels.drain(std::time::Duration::from_secs(1)).await && drained
    }
}

impl Handler for ToolInvokeHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.take(delivery))
    }
}

struct Cancels(Arc<ToolInvokeHandler>);

impl Handler for Cancels {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        match delivery.envelope().decode(Limits::default()) {
            Ok(cancel) => self.0.running.cancel(&cancel),
            Err(error) => warn!(%error, "unreadable cancel"),
        }
        // A cancel is for whoever runs the call; there is nothing to try again.
        Box::pin(std::future::ready(Settlement::Ack))
    }
}

/// No call runs longer, whatever its asker allows.
const MAX_BUDGET: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

fn unknown_agent() -> &'static AgentName {
    static UNKNOWN: std::sync::LazyLock<AgentName> = std::sync::LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "a constant that is a valid name")]
        AgentName::new("unknown").expect("a name")
    });
    &UNKNOWN
}

fn response(
    request: &ToolInvokeRequest,
    result: ToolResult,
    elapsed_ms: u64,
) -> ToolInvokeResponse {
    let content = result.to_text().into_owned();
    let only_text =
        matches!(result.content.as_slice(), [] | [rockbot_contracts::ContentBlock::Text { .. }]);
    ToolInvokeResponse {
        tool_call_id: request.tool_call_id.clone(),
        tool_name: request.tool_name.clone(),
        content,
        is_error: result.is_error,
        blocks: if only_text { Vec::new() } else { result.content },
        details: result.details,
        child_loop_id: result.child_loop_id,
        elapsed_ms: Some(elapsed_ms),
    }
}

impl std::fmt::Debug for ToolInvokeHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolInvokeHandler")
            .field("source", &self.source)
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
