//! Replies to callers: from the outcome of a call to a confirmed message.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Publication, PublishError, Settlement};
use rockbot_contracts::{
    AgentName, CallStages, ContentBlock, ContentTrust, Envelope, RoutingKey, ToolInvokeRequest,
    ToolInvokeResponse, envelope::whole_millis,
};
use rockbot_tools::{failure::ToolFailure, result::ToolResult};
use tracing::{debug, info, warn};

use super::{
    journal::{CallJournal, EarlierEnd, JournalEntry, RecordedReply},
    protocol::CallProtocol,
    stats::HandlerStats,
};

/// The caller of a request, with the destination and correlation id of its reply.
pub(super) struct Caller {
    pub(super) agent: AgentName,
    pub(super) reply_to: RoutingKey,
    pub(super) correlation_id: Arc<str>,
}

/// Outcome of a call in this handler.
pub(super) enum CallOutcome {
    /// A result or a failure.
    Finished {
        result: Result<ToolResult, ToolFailure>,
        /// Run time of the tool; zero when it did not run.
        elapsed: Duration,
        /// The call's journal entry, which its reply completes.
        entry: Option<Box<JournalEntry>>,
    },
    /// The recorded reply of an earlier run.
    Recorded(RecordedReply),
}

impl CallOutcome {
    /// Returns the outcome of a call whose tool did not run here.
    pub(super) fn failed(failure: ToolFailure) -> Box<Self> {
        Self::failed_with_entry(failure, None)
    }

    /// Returns the outcome of a call whose tool did not run here, with the journal entry to complete.
    pub(super) fn failed_with_entry(
        failure: ToolFailure,
        entry: Option<Box<JournalEntry>>,
    ) -> Box<Self> {
        Box::new(Self::Finished { result: Err(failure), elapsed: Duration::ZERO, entry })
    }
}

impl From<EarlierEnd> for Box<CallOutcome> {
    fn from(end: EarlierEnd) -> Self {
        match end {
            EarlierEnd::Replied(reply) => Self::new(CallOutcome::Recorded(reply)),
            EarlierEnd::TooLarge => CallOutcome::failed(ToolFailure::failed(
                "the call ran before, and its result was too large to be recorded",
            )),
            EarlierEnd::Conflict { is_proof: true } => CallOutcome::failed(id_in_use()),
            EarlierEnd::Conflict { is_proof: false } => {
                CallOutcome::failed(id_in_use().into_possibly_executed())
            }
            EarlierEnd::Interrupted(entry) => CallOutcome::failed_with_entry(interrupted(), entry),
        }
    }
}

/// Returns the failure of a call whose id another call has.
pub(super) fn id_in_use() -> ToolFailure {
    ToolFailure::NotPermitted { reason: "another call has this id".to_owned() }
}

/// Returns the failure of a call that may have run in a handler that was lost.
pub(super) fn interrupted() -> ToolFailure {
    let message = "the handler of the call was lost; it may have run".to_owned();
    ToolFailure::OutcomeUnknown { message }
}

/// Returns the reply for a failed call.
pub(super) fn failure_reply(request: &ToolInvokeRequest, failure: &ToolFailure) -> Envelope {
    Envelope::from_payload(&failure.to_wire(request.tool_call_id.clone(), &request.tool_name))
}

/// Publishes the replies of a handler.
pub(super) struct ReplyPublisher<'a> {
    pub(super) bus: &'a Arc<dyn Bus>,
    pub(super) source: &'a Arc<str>,
    pub(super) protocol: &'a dyn CallProtocol,
    pub(super) stats: &'a HandlerStats,
    pub(super) journal: Option<&'a CallJournal>,
}

impl ReplyPublisher<'_> {
    /// Publishes and records the outcome of a call with the durations of its stages. Returns the settlement
    /// of its request.
    pub(super) fn reply(
        &self,
        request: &ToolInvokeRequest,
        caller: &Caller,
        outcome: CallOutcome,
        stages: Option<CallStages>,
    ) -> impl Future<Output = Settlement> + Send {
        let (envelope, entry) = self.encode(request, outcome, stages);
        let record = self.journal.zip(entry).map(|(journal, entry)| {
            let (message_type, body) = (envelope.raw_type.clone(), envelope.body.clone());
            Box::pin(async move { journal.finish(entry, &message_type, &body).await })
        });
        let publish = self.publish(caller, envelope);
        async move {
            let published = match record {
                // Concurrently: after a crash between the two, either one alone is still correct.
                Some(record) => tokio::join!(publish, record).0,
                None => publish.await,
            };
            self.settle(request, caller, published).await
        }
    }

    /// Returns the outcome as a message, and the journal entry to complete with it.
    fn encode(
        &self,
        request: &ToolInvokeRequest,
        outcome: CallOutcome,
        stages: Option<CallStages>,
    ) -> (Envelope, Option<Box<JournalEntry>>) {
        match outcome {
            CallOutcome::Finished { result, elapsed, entry } => {
                self.stats.count(&result);
                (self.encode_result(request, result, elapsed, stages), entry)
            }
            CallOutcome::Recorded(reply) => {
                info!("call finished before; returning recorded reply");
                self.stats.count_replayed();
                (Envelope::raw(&reply.message_type, reply.body), None)
            }
        }
    }

    /// Replies to a reply probe. An expired probe gets no reply.
    pub(super) async fn reply_to_probe(
        &self,
        request: &ToolInvokeRequest,
        caller: &Caller,
        remaining: Option<Duration>,
    ) -> Settlement {
        // It may have waited for days in a queue without consumers.
        if remaining.is_some_and(|left| left.is_zero()) {
            return Settlement::Ack;
        }
        let reply = response(request, ToolResult::text("here"), 0, None);
        let envelope = self.protocol.encode_result(reply).transient();
        // Probes are frequent; a lost reply needs no retry.
        let _ = self.publish(caller, envelope).await;
        Settlement::Ack
    }

    async fn settle(
        &self,
        request: &ToolInvokeRequest,
        caller: &Caller,
        published: Result<(), PublishError>,
    ) -> Settlement {
        match published {
            Ok(()) => Settlement::Ack,
            Err(PublishError::Unroutable { .. }) => {
                self.stats.count_undelivered();
                warn!("reply dropped: the caller's reply queue is gone");
                Settlement::Ack
            }
            // Reply queues never reject, so another bound queue did; another run would not help.
            Err(error @ PublishError::Refused { .. }) => {
                self.stats.count_undelivered();
                warn!(%error, "reply rejected by a queue other than the caller's");
                Settlement::Ack
            }
            Err(PublishError::TooLarge { bytes, limit }) => {
                let message = format!("the result has {bytes} bytes, over the limit of {limit}");
                let reply = failure_reply(request, &ToolFailure::failed(message));
                match self.publish(caller, reply).await {
                    Ok(()) => Settlement::Ack,
                    Err(_) => Settlement::Retry,
                }
            }
            Err(error) => {
                self.stats.count_undelivered();
                warn!(%error, "reply not published; requeueing the request");
                Settlement::Retry
            }
        }
    }

    /// Logs a result or failure, and returns it as a message.
    fn encode_result(
        &self,
        request: &ToolInvokeRequest,
        result: Result<ToolResult, ToolFailure>,
        elapsed: Duration,
        stages: Option<CallStages>,
    ) -> Envelope {
        let elapsed_ms = whole_millis(elapsed);
        let chars_in = request.arguments.len();
        match result {
            Ok(result) => {
                let (chars_out, is_error) = (result.bytes(), result.is_error);
                info!(elapsed_ms, chars_in, chars_out, is_error, "call finished");
                self.protocol.encode_result(response(request, result, elapsed_ms, stages))
            }
            Err(failure) => {
                let (code, executed) = (failure.code(), failure.executed());
                info!(elapsed_ms, chars_in, %code, %executed, "call failed");
                // At debug level: it quotes tools and models.
                debug!(error = ?failure.chain().to_string(), "cause of the failure");
                let mut error = failure.to_wire(request.tool_call_id.clone(), &request.tool_name);
                error.stages = stages;
                Envelope::from_payload(&error)
            }
        }
    }

    /// Publishes a reply.
    pub(super) fn publish(
        &self,
        caller: &Caller,
        envelope: Envelope,
    ) -> BoxFuture<'_, Result<(), PublishError>> {
        let envelope = envelope
            .with_correlation_id(caller.correlation_id.clone())
            .with_source(self.source.clone())
            .with_trust(ContentTrust::ToolOutput);
        self.bus.publish(Publication::mandatory(caller.reply_to.clone(), envelope))
    }
}

fn response(
    request: &ToolInvokeRequest,
    result: ToolResult,
    elapsed_ms: u64,
    stages: Option<CallStages>,
) -> ToolInvokeResponse {
    let content = result.to_text().into_owned();
    let only_text = matches!(result.content.as_slice(), [] | [ContentBlock::Text { .. }]);
    ToolInvokeResponse {
        tool_call_id: request.tool_call_id.clone(),
        tool_name: request.tool_name.clone(),
        content,
        is_error: result.is_error,
        blocks: if only_text { Vec::new() } else { result.content },
        details: result.details,
        child_loop_id: result.child_loop_id,
        elapsed_ms: Some(elapsed_ms),
        stages,
    }
}
