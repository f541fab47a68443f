//! Calls of tools and services in other processes.

use std::{pin::pin, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    ContentTrust, Envelope, Executed, Message, RoutingKey, ToolCallId, ToolCancel, ToolError,
    ToolProgress, json::Limits, mcp::McpInputAsked, topology::tool_cancel,
};
use rockbot_tools::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    result::ToolResult,
};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Time beyond the call's budget that the caller waits for a reply. The handler's own timeout error then
/// still arrives and reports whether the tool ran, even if the tool stops its child processes first.
const GRACE: Duration = Duration::from_secs(3);

/// A call to another process: it has a deadline, is cancelled when its caller stops waiting, and every
/// failure reports whether the tool ran.
pub struct RemoteCall<'a> {
    /// Sends the request.
    pub requester: &'a Requester,
    /// Key of the request; its consumers run the call.
    pub key: &'a RoutingKey,
    /// Name of the called tool or service in failure messages.
    pub name: &'a str,
    /// Set when a second run is harmless.
    pub repeatable: bool,
    /// Receives requests for input from the user of the call. The call accepts none when this is `None`.
    pub input: Option<InputSink>,
}

/// Receives the requests of a running call for input. Must not block.
pub type InputSink = Arc<dyn Fn(McpInputAsked) + Send + Sync>;

impl std::fmt::Debug for RemoteCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteCall")
            .field("key", &self.key)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RemoteCall<'_> {
    /// Sends `request` and waits for its reply, of the type `R`. Also returns the source of the reply.
    ///
    /// # Errors
    /// When there is no such reply; see [`ToolFailure`].
    ///
    /// # Cancellation
    /// A cancel is published when the context is cancelled and when the future is dropped, but not after
    /// [`ToolContext::handover`]: another process waits for the call then. Nor is it published after the
    /// deadline: the handler stops the call by itself then, and a process that was suspended until then
    /// does not know whether another one waits for the call.
    pub fn execute<R: Message>(
        &self,
        request: Envelope,
        context: &ToolContext,
    ) -> impl Future<Output = Result<(R, Option<String>), ToolFailure>> + Send {
        let ToolContext { attempt, has_client_key, .. } = *context;
        let envelope = Envelope { attempt, has_client_key, ..request }
            .with_correlation_id(context.tool_call_id.clone())
            // The broker user of this process, even if the agent works for another one.
            .with_source(self.requester.address().agent().clone())
            .with_trust(ContentTrust::ToolRequest);
        let envelope = Envelope { accepts_input: self.input.is_some(), ..envelope };
        let budget = context.remaining();
        let request = Box::new(Request {
            key: self.key.clone(),
            envelope,
            timeout: budget,
            grace: GRACE,
            on_interim: (context.updates.is_some() || self.input.is_some())
                .then(|| on_interim(context, self.input.clone())),
            // Handlers recognize a repeated request by its call id.
            retry: true,
            abandoned: Some(context.cancellation.clone()),
        });
        // Built before the future, which stays small that way: many calls wait at once.
        async move {
            let mut cancel = CancelOnDrop::new(self.requester.bus(), context);
            let mut reply = pin!(self.requester.request(request));
            let replied = tokio::select! {
                biased;
                replied = &mut reply => replied,
                () = context.cancellation.cancelled() => {
                    cancel.publish("cancelled by the caller");
                    // The handler's reply reports whether the tool had started.
                    match Box::pin(timeout(GRACE, &mut reply)).await {
                        Ok(replied) => replied,
                        Err(_) => {
                            return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
                        }
                    }
                }
            };
            match replied {
                Ok(reply) => {
                    cancel.disarm();
                    decode(&reply, &context.tool_call_id)
                }
                Err(RequestError::NeverSent { .. }) if context.cancellation.is_cancelled() => {
                    cancel.disarm();
                    Err(ToolFailure::Cancelled { executed: Executed::No })
                }
                Err(error) => {
                    if !matches!(error, RequestError::Stopped) {
                        cancel.disarm();
                    }
                    Err(self.to_failure(error, budget))
                }
            }
        }
    }

    /// Converts an error of the request to a failure that reports whether the tool may have run.
    fn to_failure(&self, error: RequestError, after: Duration) -> ToolFailure {
        let name = self.name;
        let no = Executed::No;
        match error {
            RequestError::Publish(error) => match error {
                PublishError::Unroutable { .. } => ToolFailure::Unavailable {
                    message: format!("no handler is available for {name}"),
                    executed: no,
                },
                PublishError::Refused { .. } => {
                    ToolFailure::Overloaded { message: format!("the queue of {name} is full") }
                }
                PublishError::TooLarge { bytes, limit } => ToolFailure::invalid(format!(
                    "the request with these arguments has {bytes} bytes, over the limit of {limit}"
                )),
                PublishError::Unsendable { .. } => {
                    ToolFailure::invalid(format!("the call can't be sent: {error}"))
                }
                PublishError::Disconnected { .. } | PublishError::Closed => {
                    bus_unavailable(no, &error)
                }
                PublishError::Unconfirmed { .. } => {
                    warn!(%error, "request not confirmed");
                    let message = "the request may or may not have arrived".to_owned();
                    ToolFailure::OutcomeUnknown { message }
                }
            },
            RequestError::Subscribe(error) => bus_unavailable(no, &error),
            RequestError::TimedOut { .. } => ToolFailure::TimedOut {
                after,
                executed: Executed::Unknown,
                repeatable: self.repeatable,
            },
            RequestError::NeverSent { .. } => {
                ToolFailure::TimedOut { after, executed: no, repeatable: self.repeatable }
            }
            RequestError::TooManyPending { limit } => {
                ToolFailure::Overloaded { message: format!("{limit} calls are already pending") }
            }
            RequestError::BadCorrelationId { .. } => ToolFailure::NotPermitted {
                reason: "another call with this id is pending".to_owned(),
            },
            RequestError::Stopped => ToolFailure::OutcomeUnknown {
                message: "this process stopped before the reply arrived".to_owned(),
            },
        }
    }
}

fn bus_unavailable(
    executed: Executed,
    error: &(dyn std::error::Error + Send + Sync),
) -> ToolFailure {
    warn!(%error, "bus unavailable");
    // Without the error text: it names the broker, which models must not see.
    ToolFailure::Unavailable { message: "the message bus is unavailable".to_owned(), executed }
}

fn decode<R: Message>(
    reply: &Envelope,
    call: &ToolCallId,
) -> Result<(R, Option<String>), ToolFailure> {
    let ran_on = reply.source.as_deref().map(ToOwned::to_owned);
    let limits = Limits::default();
    if reply.message_type() == ToolError::TYPE {
        let error = reply.decode(limits).map_err(|error| unreadable_reply(call, &error))?;
        return Err(ToolFailure::Remote { error: Box::new(error), ran_on });
    }
    let reply = reply.decode(limits).map_err(|error| unreadable_reply(call, &error))?;
    Ok((reply, ran_on))
}

/// Returns the failure of a call whose reply is unreadable: the call may have run.
pub fn unreadable_reply(call: &ToolCallId, error: &dyn std::fmt::Display) -> ToolFailure {
    warn!(tool_call_id = %call, %error, "unreadable reply");
    ToolFailure::OutcomeUnknown { message: "the reply could not be read".to_owned() }
}

fn on_interim(
    context: &ToolContext,
    input: Option<InputSink>,
) -> Arc<dyn Fn(&Envelope) + Send + Sync> {
    let progress = on_progress(context);
    let call = context.tool_call_id.clone();
    Arc::new(move |envelope| {
        if envelope.message_type() != McpInputAsked::TYPE {
            return progress(envelope);
        }
        match (envelope.decode::<McpInputAsked>(Limits::default()), &input) {
            (Ok(asked), Some(input)) if asked.tool_call_id == call => input(asked),
            (Ok(_), _) => debug!(tool_call_id = %call, "unexpected request for input dropped"),
            (Err(error), _) => debug!(%error, "unreadable request for input"),
        }
    })
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

/// Publishes a cancel when its caller stops waiting without a reply.
struct CancelOnDrop<'a> {
    bus: &'a Arc<dyn Bus>,
    call: Option<ToolCallId>,
    deadline: Instant,
    handover: CancellationToken,
}

impl<'a> CancelOnDrop<'a> {
    fn new(bus: &'a Arc<dyn Bus>, context: &ToolContext) -> Self {
        let handover = context.handover.clone();
        Self { bus, call: Some(context.tool_call_id.clone()), deadline: context.deadline, handover }
    }

    fn disarm(&mut self) {
        self.call = None;
    }

    fn publish(&mut self, reason: &str) {
        let Some(tool_call_id) = self.call.take() else { return };
        let now = Instant::now();
        if self.handover.is_cancelled() || now >= self.deadline {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let cancel = ToolCancel { tool_call_id, reason: reason.to_owned() };
        // Handlers remember the cancel for this time: a copy of the request may reach them later.
        let remaining = self.deadline.saturating_duration_since(now) + GRACE;
        let envelope = Envelope::from_payload(&cancel)
            .with_correlation_id(cancel.tool_call_id.as_str())
            .within(remaining);
        let bus = self.bus.clone();
        // The publish itself has a timeout.
        runtime.spawn(async move {
            if let Err(error) =
                bus.publish(Publication::announcement(tool_cancel(), envelope)).await
            {
                debug!(%error, "cancel not published; the call ends at its deadline");
            }
        });
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.publish("the caller stopped waiting");
    }
}
