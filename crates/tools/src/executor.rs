//! Execution of tool calls: the layers, the hooks around them, and the events about them.

use std::{sync::Arc, time::Instant};

use futures_util::{TryFutureExt, future::Either};
use rockbot_contracts::{Executed, ToolErrorCode};
use tracing::{debug, info};

use crate::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    hooks::{CallEnd, EventSink, FinishedCall, ToolEvent, ToolHook, Verdict},
    layers::{
        CallAccount, CallService, LayerOptions, ToolCall,
        stack::{Stack, assemble},
    },
    registry::ToolRegistry,
    result::ToolResult,
};

/// Runs calls of the tools in a registry. Both ends of the bus use it: an agent's registry holds remote
/// tools, a handler's the tools themselves.
pub struct ToolExecutor {
    registry: Arc<ToolRegistry>,
    stack: Stack,
    account: Option<Arc<CallAccount>>,
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
        let hooks = std::mem::take(&mut layers.hooks);
        let stack = assemble(&registry, layers);
        Self { registry, stack, account, hooks }
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
        let hooked = HookedCall::new(&self.hooks, &call);
        if let Some(reason) = hooked.refusal().await {
            info!(tool_call_id = %call.context.tool_call_id, tool = %call.context.tool_name,
                "tool call refused by a hook");
            let refused = Err(ToolFailure::NotPermitted { reason });
            hooked.finish(&refused).await;
            return refused;
        }
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
        events(ToolEvent::Finished { context, end });
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
    context: ToolContext,
    arguments: Arc<str>,
    started: Instant,
    finished: bool,
}

impl<'a> HookedCall<'a> {
    fn new(hooks: &'a [Arc<dyn ToolHook>], call: &ToolCall) -> Self {
        let (context, arguments) = (call.context.clone(), call.arguments.clone());
        Self { hooks, context, arguments, started: Instant::now(), finished: false }
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

    /// Runs the hooks after the call.
    async fn finish(mut self, result: &Result<ToolResult, ToolFailure>) -> CallEnd {
        let end = call_end(self.started, result);
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
            let elapsed = self.started.elapsed();
            self.hooks
                .iter()
                .for_each(|hook| hook.abandoned(&self.context, &self.arguments, elapsed));
        }
    }
}

fn call_end(started: Instant, result: &Result<ToolResult, ToolFailure>) -> CallEnd {
    let elapsed = started.elapsed();
    match result {
        Ok(result) => CallEnd {
            elapsed,
            bytes: result.bytes(),
            error: result.is_error.then_some(ToolErrorCode::ExecutionFailed),
            executed: Executed::Yes,
            ran_on: result.ran_on.clone(),
        },
        Err(failure) => CallEnd {
            elapsed,
            bytes: failure.model_text().len(),
            error: Some(failure.code()),
            executed: failure.executed(),
            ran_on: failure.ran_on().map(ToOwned::to_owned),
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
