//! The near end of a tool call: a tool that runs somewhere else on the bus.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Publication, PublishError, Request, RequestError, Requester};
use rockbot_contracts::{
    ContentBlock, ContentTrust, Envelope, Executed, Message, RoutingKey, ToolCallId, ToolCancel,
    ToolError, ToolInvokeRequest, ToolInvokeResponse, ToolProgress, ToolRegistration, json::Limits,
    topology::tool_cancel,
};
use serde_json::Value;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::{
    failure::ToolFailure,
    result::ToolResult,
    tool::{Tool, ToolContext, ToolUpdate},
};

/// How much longer than the call's budget the asker waits, so that the worker's own word on a
/// time-out (which says whether the tool ran) arrives, even from a tool that ends its children in
/// good order.
const GRACE: Duration = Duration::from_secs(3);

/// The provider of tools of MCP servers, as the header has it.
const MCP: &str = "mcp";

/// A tool that a handler runs, asked for over the bus.
#[derive(Debug)]
pub struct RemoteTool {
    registration: ToolRegistration,
    requester: Arc<Requester>,
    key: RoutingKey,
    /// The MCP server that has it, and its name there.
    of_server: Option<(Box<str>, Box<str>)>,
}

impl RemoteTool {
    /// The tool that `registration` describes, served by whoever consumes `key`.
    #[must_use]
    pub fn new(registration: ToolRegistration, requester: Arc<Requester>, key: RoutingKey) -> Self {
        Self { registration, requester, key, of_server: None }
    }

    /// The same as a tool of the MCP server `server`, which calls it `tool`.
    #[must_use]
    pub fn of_server(mut self, server: &str, tool: &str) -> Self {
        self.of_server = Some((server.into(), tool.into()));
        self
    }

    async fn ask(
        &self,
        arguments: &Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let (server, tool) = match &self.of_server {
            Some((server, tool)) => (Some(server), tool.as_ref()),
            None => (None, self.registration.name.as_str()),
        };
        let request = ToolInvokeRequest {
            tool_call_id: context.tool_call_id.clone(),
            tool_name: tool.to_owned(),
            arguments: arguments.to_string(),
            session_id: context.session_id.clone(),
        };
        let mut envelope = Envelope::of(&request)
            .correlated(context.tool_call_id.as_str())
            .from_source(context.agent.as_str())
            .trusted_as(ContentTrust::ToolRequest);
        if let Some(server) = server {
            envelope.tool_provider = Some(MCP.into());
            envelope.mcp_server = Some(server.as_ref().into());
        }
        let budget = context.remaining();
        let question = Request {
            key: self.key.clone(),
            envelope,
            timeout: budget,
            grace: GRACE,
            on_interim: context.updates.is_some().then(|| on_progress(context)),
            // Handlers know the second of two by the id.
            ask_again: true,
            give_up: Some(context.cancellation.clone()),
        };
        let mut cancel = CancelOnDrop::armed(self.requester.bus(), &context.tool_call_id);
        let asked = self.requester.ask(question);
        tokio::pin!(asked);
        let answered = tokio::select! {
            biased;
            answered = &mut asked => answered,
            () = context.cancellation.cancelled() => {
                cancel.fire("cancelled by the asker");
                // The worker says whether the tool had begun.
                match timeout(GRACE, &mut asked).await {
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
                read_answer(&answer, &context.tool_call_id)
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

    /// What a failed question means for the call: above all, whether the tool may have run.
    fn explain(&self, error: RequestError, after: Duration) -> ToolFailure {
        let name = &self.registration.name;
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
                repeatable: self.registration.hints.may_run_again(),
            },
            RequestError::NeverSent { .. } => ToolFailure::TimedOut {
                after,
                executed: no,
                repeatable: self.registration.hints.may_run_again(),
            },
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

impl Tool for RemoteTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { self.ask(&arguments, context).await })
    }

    fn keeps_deadline(&self) -> bool {
        true
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

fn read_answer(answer: &Envelope, asked: &ToolCallId) -> Result<ToolResult, ToolFailure> {
    let ran_on = answer.source.as_deref().map(ToOwned::to_owned);
    let lost = |error: &dyn std::fmt::Display| {
        warn!(tool_call_id = %asked, %error, "unreadable answer");
        let message = "the answer could not be read".to_owned();
        ToolFailure::OutcomeUnknown { message }
    };
    match answer.message_type() {
        ToolError::TYPE => {
            let error: ToolError = answer.decode(Limits::default()).map_err(|e| lost(&e))?;
            Err(ToolFailure::Remote { error: Box::new(error), ran_on })
        }
        _ => {
            let response: ToolInvokeResponse =
                answer.decode(Limits::default()).map_err(|e| lost(&e))?;
            if response.tool_call_id != *asked {
                return Err(lost(&"it is of another call"));
            }
            let content = match response.blocks {
                blocks if blocks.is_empty() => vec![ContentBlock::Text { text: response.content }],
                blocks => blocks,
            };
            Ok(ToolResult {
                content,
                details: response.details,
                child_loop_id: response.child_loop_id,
                is_error: response.is_error,
                ran_on,
            })
        }
    }
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
        let envelope = Envelope::of(&cancel).correlated(cancel.tool_call_id.as_str());
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
