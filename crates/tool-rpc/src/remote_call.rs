//! Asking somebody else on the bus to run something.

use std::{pin::pin, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    ContentTrust, Envelope, Executed, Message, RoutingKey, ToolCallId, ToolCancel, ToolError,
    ToolProgress, json::Limits, topology::tool_cancel,
};
use rockbot_tools::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    result::ToolResult,
};
use tokio::time::timeout;
use tracing::{debug, warn};

/// How much longer than the call's budget the asker waits, so that the worker's own word on a
/// time-out (which says whether the tool ran) arrives, even from a tool that ends its children in
/// good order.
const GRACE: Duration = Duration::from_secs(3);

/// Something that runs elsewhere: asked for with a deadline, cancelled when nobody waits for it any
/// more, and always with a word on whether it ran.
#[derive(Debug)]
pub struct RemoteCall<'a> {
    /// Asks.
    pub requester: &'a Requester,
    /// Who is asked: whoever consumes this key.
    pub key: &'a RoutingKey,
    /// What is asked for, in the words of failures.
    pub name: &'a str,
    /// Whether running it twice does no harm.
    pub repeatable: bool,
}

impl RemoteCall<'_> {
    /// Asks with `question`, a payload of the conversation of this key, and waits for the answer,
    /// which is of the type `A`. With it comes who gave it.
    ///
    /// # Errors
    /// Whatever became of it instead; see [`ToolFailure`].
    ///
    /// # Cancellation
    /// On the context's cancellation, and when the future is dropped, whoever runs it is told.
    pub fn execute<A: Message>(
        &self,
        question: Envelope,
        context: &ToolContext,
    ) -> impl Future<Output = Result<(A, Option<String>), ToolFailure>> + Send {
        let envelope = question
            .with_correlation_id(context.tool_call_id.clone())
            // As whom the broker knows this process, also for an agent that works for another.
            .with_source(self.requester.address().agent().clone())
            .with_trust(ContentTrust::ToolRequest);
        let budget = context.remaining();
        let request = Box::new(Request {
            key: self.key.clone(),
            envelope,
            timeout: budget,
            grace: GRACE,
            on_interim: context.updates.is_some().then(|| on_progress(context)),
            // Handlers know the second of two by the id.
            retry: true,
            abandoned: Some(context.cancellation.clone()),
        });
        // Many calls wait in here at once, so what they ask is not kept beside.
        async move {
            let mut cancel = CancelOnDrop::armed(self.requester.bus(), &context.tool_call_id);
            let mut asked = pin!(self.requester.request(request));
            let answered = tokio::select! {
                biased;
                answered = &mut asked => answered,
                () = context.cancellation.cancelled() => {
                    cancel.fire("cancelled by the asker");
                    // The worker says whether the tool had begun.
                    match Box::pin(timeout(GRACE, &mut asked)).await {
                        Ok(answered) => answered,
                        Err(_) => {
                            return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
                        }
                    }
                }
            };
            match answered {
                Ok(answer) => {
                    cancel.disarm();
                    read(&answer, &context.tool_call_id)
                }
                Err(RequestError::NeverSent { .. }) if context.cancellation.is_cancelled() => {
                    cancel.disarm();
                    Err(ToolFailure::Cancelled { executed: Executed::No })
                }
                Err(error) => {
                    if !matches!(error, RequestError::TimedOut { .. } | RequestError::Stopped) {
                        cancel.disarm();
                    }
                    Err(self.explain(error, budget))
                }
            }
        }
    }

    /// What a failed question means for the call: above all, whether the tool may have run.
    fn explain(&self, error: RequestError, after: Duration) -> ToolFailure {
        let name = self.name;
        let no = Executed::No;
        match error {
            RequestError::Publish(error) => match error {
                PublishError::Unroutable { .. } => ToolFailure::Unavailable {
                    message: format!("nobody serves {name} now"),
                    executed: no,
                },
                PublishError::Refused { .. } => {
                    ToolFailure::Overloaded { message: format!("the queue of {name} is full") }
                }
                PublishError::TooLarge { bytes, limit } => ToolFailure::invalid(format!(
                    "the arguments make a message of {bytes} bytes, at most {limit}"
                )),
                PublishError::Unsendable { .. } => {
                    ToolFailure::invalid(format!("the call can't be sent: {error}"))
                }
                PublishError::Disconnected { .. } | PublishError::Closed => {
                    unreachable_bus(no, &error)
                }
                PublishError::Unconfirmed { .. } => {
                    warn!(%error, "a request may or may not have gone out");
                    let message = "the request may or may not have arrived".to_owned();
                    ToolFailure::OutcomeUnknown { message }
                }
            },
            RequestError::Subscribe(error) => unreachable_bus(no, &error),
            RequestError::TimedOut { .. } => ToolFailure::TimedOut {
                after,
                executed: Executed::Unknown,
                repeatable: self.repeatable,
            },
            RequestError::NeverSent { .. } => {
                ToolFailure::TimedOut { after, executed: no, repeatable: self.repeatable }
            }
            RequestError::TooManyPending { limit } => {
                ToolFailure::Overloaded { message: format!("{limit} calls are waiting already") }
            }
            RequestError::BadCorrelationId { .. } => {
                ToolFailure::NotPermitted { reason: "another call with this id is open".to_owned() }
            }
            RequestError::Stopped => ToolFailure::OutcomeUnknown {
                message: "this process stopped before the answer came".to_owned(),
            },
        }
    }
}

fn unreachable_bus(
    executed: Executed,
    error: &(dyn std::error::Error + Send + Sync),
) -> ToolFailure {
    warn!(%error, "the bus is out of reach");
    // Without the error's own words: they name the broker, which is not a model's business.
    ToolFailure::Unavailable { message: "the bus is out of reach".to_owned(), executed }
}

fn read<A: Message>(
    answer: &Envelope,
    asked: &ToolCallId,
) -> Result<(A, Option<String>), ToolFailure> {
    let ran_on = answer.source.as_deref().map(ToOwned::to_owned);
    if answer.message_type() == ToolError::TYPE {
        let error =
            answer.decode(Limits::default()).map_err(|error| unreadable_reply(asked, &error))?;
        return Err(ToolFailure::Remote { error: Box::new(error), ran_on });
    }
    let answer =
        answer.decode(Limits::default()).map_err(|error| unreadable_reply(asked, &error))?;
    Ok((answer, ran_on))
}

/// An answer that came and says nothing: what was asked for may have run.
pub fn unreadable_reply(asked: &ToolCallId, error: &dyn std::fmt::Display) -> ToolFailure {
    warn!(tool_call_id = %asked, %error, "unreadable answer");
    ToolFailure::OutcomeUnknown { message: "the answer could not be read".to_owned() }
}

fn on_progress(context: &ToolContext) -> Arc<dyn Fn(&Envelope) + Send + Sync> {
    let context = context.clone();
    Arc::new(move |envelope| match envelope.decode::<ToolProgress>(Limits::default()) {
        Ok(ToolProgress { text: Some(text), .. }) => context.progress(text),
        Ok(ToolProgress { partial: Some(partial), .. }) => {
            if let Some(updates) = &context.updates {
                updates(ToolUpdate::Partial(ToolResult::text(partial)));
            }
        }
        Ok(_) => {}
        Err(error) => debug!(%error, "unreadable progress"),
    })
}

/// Tells the workers that nobody waits any more, when the asker goes away without an answer.
struct CancelOnDrop<'a> {
    bus: &'a Arc<dyn Bus>,
    call: Option<ToolCallId>,
}

impl<'a> CancelOnDrop<'a> {
    fn armed(bus: &'a Arc<dyn Bus>, call: &ToolCallId) -> Self {
        Self { bus, call: Some(call.clone()) }
    }

    fn disarm(&mut self) {
        self.call = None;
    }

    fn fire(&mut self, reason: &str) {
        let Some(tool_call_id) = self.call.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let cancel = ToolCancel { tool_call_id, reason: reason.to_owned() };
        let envelope =
            Envelope::from_payload(&cancel).with_correlation_id(cancel.tool_call_id.as_str());
        let bus = self.bus.clone();
        // Bounded by the publish's own time-out.
        runtime.spawn(async move {
            if let Err(error) =
                bus.publish(Publication::announcement(tool_cancel(), envelope)).await
            {
                debug!(%error, "a cancel was lost; the call ends by its deadline");
            }
        });
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.fire("nobody waits for it any more");
    }
}
