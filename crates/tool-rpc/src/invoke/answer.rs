//! The way back: from how a call ended to an answer that its asker has.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Publication, PublishError, Settlement};
use rockbot_contracts::{
    AgentName, ContentBlock, ContentTrust, Envelope, RoutingKey, ToolCallId, ToolInvokeRequest,
    ToolInvokeResponse, message::DecodeError,
};
use rockbot_tools::{failure::ToolFailure, result::ToolResult};
use tracing::{debug, info, warn};

use super::{
    journal::{Begun, CallJournal, KeptAnswer},
    protocol::CallProtocol,
    stats::HandlerStats,
};

/// Who asks, where the answer goes, and under which id it is waited for.
pub(super) struct Asker {
    pub(super) name: AgentName,
    pub(super) reply_to: RoutingKey,
    pub(super) correlation_id: Arc<str>,
}

/// How a call ended here.
pub(super) enum Ending {
    /// With a result or a failure.
    Ran {
        ended: Result<ToolResult, ToolFailure>,
        /// How long the tool ran.
        elapsed: Duration,
        /// What the journal has of it.
        begun: Option<Box<Begun>>,
    },
    /// As the journal says it ended before.
    Kept(KeptAnswer),
}

impl Ending {
    pub(super) fn failed(failure: ToolFailure) -> Box<Self> {
        Box::new(Self::Ran { ended: Err(failure), elapsed: Duration::ZERO, begun: None })
    }
}

/// Answers the calls of a handler.
pub(super) struct Answers<'a> {
    pub(super) bus: &'a Arc<dyn Bus>,
    pub(super) source: &'a Arc<str>,
    pub(super) protocol: &'a dyn CallProtocol,
    pub(super) stats: &'a HandlerStats,
    pub(super) journal: Option<&'a CallJournal>,
}

impl Answers<'_> {
    /// Answers a call, and says what becomes of its request.
    pub(super) fn give(
        &self,
        request: &ToolInvokeRequest,
        asker: &Asker,
        ending: Ending,
    ) -> impl Future<Output = Settlement> + Send {
        let (envelope, begun) = self.message(request, ending);
        let end = self.journal.zip(begun).map(|(journal, begun)| {
            let (message_type, body) = (envelope.raw_type.clone(), envelope.body.clone());
            Box::pin(async move { journal.end(begun, &message_type, &body).await })
        });
        let publish = self.publish(asker, envelope);
        async move {
            let published = match end {
                // Side by side: whichever a crash leaves undone, the other tells no lie.
                Some(end) => tokio::join!(publish, end).0,
                None => publish.await,
            };
            self.settle(request, asker, published).await
        }
    }

    /// How it ended as a message, and what is to be told to the journal.
    fn message(
        &self,
        request: &ToolInvokeRequest,
        ending: Ending,
    ) -> (Envelope, Option<Box<Begun>>) {
        match ending {
            Ending::Ran { ended, elapsed, begun } => {
                self.stats.count(&ended);
                (self.describe(request, ended, elapsed), begun)
            }
            Ending::Kept(kept) => {
                info!("the call ended before; answering the same");
                self.stats.count_kept();
                (Envelope::raw(&kept.message_type, kept.body), None)
            }
        }
    }

    /// Answers an asker that only wants to know whether answers arrive.
    pub(super) async fn sign_of_life(
        &self,
        request: &ToolInvokeRequest,
        asker: &Asker,
        remaining: Option<Duration>,
    ) -> Settlement {
        // It may have waited for days in a queue that nobody worked on.
        if remaining.is_some_and(|left| left.is_zero()) {
            return Settlement::Ack;
        }
        let answer = response(request, ToolResult::text("here"), 0);
        let envelope = self.protocol.write(answer).transient();
        // Who asks again in a moment need not get this one.
        let _ = self.publish(asker, envelope).await;
        Settlement::Ack
    }

    async fn settle(
        &self,
        request: &ToolInvokeRequest,
        asker: &Asker,
        published: Result<(), PublishError>,
    ) -> Settlement {
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
                let failure = ToolFailure::failed(message);
                let answer = failure.to_wire(request.tool_call_id.clone(), &request.tool_name);
                match self.publish(asker, Envelope::from_payload(&answer)).await {
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

    /// Refuses a request that can't be read; who can be told is told.
    pub(super) async fn unreadable(
        &self,
        envelope: &Envelope,
        asker: &Asker,
        error: &DecodeError,
    ) -> Settlement {
        self.stats.count_unreadable();
        // It quotes what could not be read.
        debug!(correlation_id = &*asker.correlation_id, %error, "unreadable request");
        if let (Ok(id), Some(_)) = (ToolCallId::new(&*asker.correlation_id), &envelope.reply_to) {
            let answer = ToolFailure::invalid(error.to_string()).to_wire(id, "");
            // The dead letter keeps the request, whether or not somebody hears the answer.
            let _ = self.publish(asker, Envelope::from_payload(&answer)).await;
        }
        Settlement::dead_letter(error.to_string())
    }

    /// Logs how the call ended, and wraps it up.
    fn describe(
        &self,
        request: &ToolInvokeRequest,
        ended: Result<ToolResult, ToolFailure>,
        elapsed: Duration,
    ) -> Envelope {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let chars_in = request.arguments.len();
        match ended {
            Ok(result) => {
                let (chars_out, is_error) = (result.bytes(), result.is_error);
                info!(elapsed_ms, chars_in, chars_out, is_error, "ran");
                self.protocol.write(response(request, result, elapsed_ms))
            }
            Err(failure) => {
                let (code, executed) = (failure.code(), failure.executed());
                info!(elapsed_ms, chars_in, %code, %executed, "failed");
                // In the words of tools and models.
                debug!(error = ?failure.chain().to_string(), "why it failed");
                Envelope::from_payload(
                    &failure.to_wire(request.tool_call_id.clone(), &request.tool_name),
                )
            }
        }
    }

    fn publish(
        &self,
        asker: &Asker,
        envelope: Envelope,
    ) -> BoxFuture<'_, Result<(), PublishError>> {
        let envelope = envelope
            .with_correlation_id(asker.correlation_id.clone())
            .with_source(self.source.clone())
            .with_trust(ContentTrust::ToolOutput);
        self.bus.publish(Publication::mandatory(asker.reply_to.clone(), envelope))
    }
}

fn response(
    request: &ToolInvokeRequest,
    result: ToolResult,
    elapsed_ms: u64,
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
    }
}
