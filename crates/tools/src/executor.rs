//! Execution of tool calls: the layers, the hooks around them, and the events about them.

use std::{sync::Arc, time::Duration};

use futures_util::{TryFutureExt, future::Either};
use rockbot_contracts::{Executed, ToolErrorCode};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    hooks::{AbandonedCall, CallEnd, EventSink, FinishedCall, ToolEvent, ToolHook, Verdict},
    layers::{
        CallAccount, CallService, LayerOptions, ToolCall,
        stack::{Stack, assemble},
    },
    redaction::Redactor,
    registry::{RegisteredTool, ToolRegistry},
    result::ToolResult,
};

/// Runs calls of the tools in a registry. Both ends of the bus use it: an agent's registry holds remote
/// tools, a handler's the tools themselves.
pub struct ToolExecutor {
    registry: Arc<ToolRegistry>,
    stack: Stack,
    account: Option<Arc<CallAccount>>,
    redactor: Arc<Redactor>,
    hooks: Vec<Arc<dyn ToolHook>>,
}

impl ToolExecutor {
    /// Creates an executor with default layers and without hooks.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>) -> Self {
        Self::with_layers(registry, LayerOptions::default())
    }

    /// Creates an executor with a size limit for results, in bytes.
    #[must_use]
    pub fn with_max_result(registry: Arc<ToolRegistry>, max_bytes: usize) -> Self {
        let layers = LayerOptions { max_result_bytes: max_bytes, ..LayerOptions::default() };
        Self::with_layers(registry, layers)
    }

    /// Creates an executor with the given layers and hooks.
    #[must_use]
    pub fn with_layers(registry: Arc<ToolRegistry>, mut layers: LayerOptions) -> Self {
        let account = layers.account.clone();
        let redactor = layers.redactor.clone();
        let hooks = std::mem::take(&mut layers.hooks);
        let stack = assemble(&registry, layers);
        Self { registry, stack, account, redactor, hooks }
    }

    /// Returns the tools that it runs.
    #[must_use]
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        &self.registry
    }

    /// Returns the account in which calls are counted.
    #[must_use]
    pub fn account(&self) -> Option<&Arc<CallAccount>> {
        self.account.as_ref()
    }

    /// Runs one call. The tool is looked up now, and called when the future is polled.
    ///
    /// # Errors
    /// See [`ToolFailure`]. A failure that the tool itself describes is a result, not an error.
    ///
    /// # Cancellation
    /// Dropping the future drops the tool's; cancelling the context's token does the same and reports
    /// the outcome to hooks.
    pub fn execute(
        &self,
        call: ToolCall,
    ) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        if self.hooks.is_empty() {
            Either::Left(self.call(call))
        } else {
            Either::Right(Box::pin(self.execute_hooked(call, None)))
        }
    }

    /// Runs one call and publishes what happens to it to `events`. See [`execute`](Self::execute) for
    /// errors and cancellation.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub async fn execute_with_events(
        &self,
        call: ToolCall,
        events: EventSink,
    ) -> Result<ToolResult, ToolFailure> {
        Box::pin(self.execute_hooked(call, Some(events))).await
    }

    fn call(&self, call: ToolCall) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        let result = self.stack.call(call);
        result.inspect_err(|failure| debug!(error = %failure.chain(), "tool call failed"))
    }

    /// Runs a call with the hooks and events around it.
    async fn execute_hooked(
        &self,
        mut call: ToolCall,
        events: Option<EventSink>,
    ) -> Result<ToolResult, ToolFailure> {
        let tool = self.registry.get(&call.context.tool_name);
        let mut hooked = HookedCall::new(&self.hooks, &call, tool.as_deref());
        // Without a tool there is nothing to check: the call fails.
        if tool.is_some()
            && let Err(failure) = hooked.check(&self.redactor).await
        {
            let refused = Err(failure);
            hooked.finish(&refused).await;
            return refused;
        }
        hooked.may_run = true;
        let Some(events) = events else {
            let result = self.call(call).await;
            hooked.finish(&result).await;
            return result;
        };
        publish_updates(&mut call, events.clone());
        let context = call.context.clone();
        events(ToolEvent::Started { context: context.clone(), arguments: call.arguments.clone() });
        let result = self.call(call).await;
        let end = hooked.finish(&result).await;
        let (text, text_left_out) = bounded_text(&result);
        events(ToolEvent::Finished { context, end, text, text_left_out });
        result
    }
}

/// Publishes the tool's updates as events, before they go on to the caller.
fn publish_updates(call: &mut ToolCall, events: EventSink) {
    let caller = call.context.updates.take();
    let context = call.context.clone();
    call.context.updates = Some(Arc::new(move |update: ToolUpdate| {
        events(ToolEvent::Updated { context: context.clone(), update: update.clone() });
        if let Some(caller) = &caller {
            caller(update);
        }
    }));
}

/// A call between its hooks. Reports the call as abandoned when it is dropped before the outcome.
struct HookedCall<'a> {
    hooks: &'a [Arc<dyn ToolHook>],
    /// The context, with the registered name of the tool: a call may name it by an alias.
    context: ToolContext,
    arguments: Arc<str>,
    started: Instant,
    /// Set when the hooks permitted the call, so that it may have reached its tool.
    may_run: bool,
    finished: bool,
}

impl<'a> HookedCall<'a> {
    fn new(hooks: &'a [Arc<dyn ToolHook>], call: &ToolCall, tool: Option<&RegisteredTool>) -> Self {
        let (mut context, arguments) = (call.context.clone(), call.arguments.clone());
        if let Some(tool) = tool {
            context.tool_name = tool.registration().name.as_str().into();
        }
        Self { hooks, context, arguments, started: Instant::now(), may_run: false, finished: false }
    }

    /// Runs the hooks before the call, until its deadline or its cancellation.
    async fn check(&self, redactor: &Redactor) -> Result<(), ToolFailure> {
        let ToolContext { tool_call_id, tool_name, cancellation, deadline, .. } = &self.context;
        tokio::select! {
            biased;
            () = cancellation.cancelled() => Err(ToolFailure::Cancelled { executed: Executed::No }),
            refusal = self.refusal() => match refusal {
                None => Ok(()),
                Some(reason) => {
                    info!(%tool_call_id, tool = %tool_name, "tool call refused by a hook");
                    Err(ToolFailure::NotPermitted { reason: redactor.redact(&reason).into_owned() })
                }
            },
            () = tokio::time::sleep_until(*deadline) => Err(ToolFailure::TimedOut {
                after: self.started.elapsed(),
                executed: Executed::No,
                repeatable: true,
            }),
        }
    }

    /// Runs the hooks before the call, in order. Returns the reason of the first refusal.
    async fn refusal(&self) -> Option<String> {
        for hook in self.hooks {
            let verdict = hook.before_execution(&self.context, &self.arguments).await;
            if let Verdict::Refuse { reason } = verdict {
                return Some(reason);
            }
        }
        None
    }

    /// Returns the time since the start, without that of a user who approved the call.
    fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.context.approval_time.total())
    }

    /// Runs the hooks after the call.
    async fn finish(mut self, result: &Result<ToolResult, ToolFailure>) -> CallEnd {
        let end = call_end(self.elapsed(), result);
        // A future dropped during the hooks below does not report the call twice.
        self.finished = true;
        let (context, arguments) = (&self.context, &*self.arguments);
        let call = FinishedCall { context, arguments, end: &end, result };
        for hook in self.hooks {
            hook.after_execution(&call).await;
        }
        end
    }
}

impl Drop for HookedCall<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let call = AbandonedCall {
                context: &self.context,
                arguments: &self.arguments,
                elapsed: self.elapsed(),
                executed: if self.may_run { Executed::Unknown } else { Executed::No },
            };
            self.hooks.iter().for_each(|hook| hook.abandoned(&call));
        }
    }
}

/// Returns the text of a result or an error for an event, and the number of truncated bytes.
fn bounded_text(result: &Result<ToolResult, ToolFailure>) -> (String, usize) {
    let whole = match result {
        Ok(result) => result.to_text(),
        Err(failure) => failure.model_text().into(),
    };
    let end = whole.floor_char_boundary(ToolEvent::MAX_TEXT_BYTES);
    (whole[..end].to_owned(), whole.len() - end)
}

fn call_end(elapsed: Duration, result: &Result<ToolResult, ToolFailure>) -> CallEnd {
    match result {
        Ok(result) => CallEnd {
            elapsed,
            bytes: result.bytes(),
            error: result.is_error.then_some(ToolErrorCode::ExecutionFailed),
            executed: Executed::Yes,
            ran_on: result.ran_on.clone(),
            child_loop_id: result.child_loop_id.clone(),
            stages: result.stages,
        },
        Err(failure) => CallEnd {
            elapsed,
            bytes: failure.model_text().len(),
            error: Some(failure.code()),
            executed: failure.executed(),
            ran_on: failure.ran_on().map(ToOwned::to_owned),
            child_loop_id: None,
            stages: failure.stages(),
        },
    }
}

impl std::fmt::Debug for ToolExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolExecutor")
            .field("registry", &self.registry)
            .field("hooks", &self.hooks.len())
            .finish_non_exhaustive()
    }
}
