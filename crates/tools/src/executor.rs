//! Runs calls: the layers, the hooks around them, and the events about them.

use std::{sync::Arc, time::Instant};

use futures_util::{TryFutureExt, future::Either};
use rockbot_contracts::{Executed, ToolErrorCode};
use tracing::{debug, info};

use crate::{
    context::ToolUpdate,
    failure::ToolFailure,
    hooks::{CallEnd, EventSink, ToolEvent, ToolHook, Verdict},
    layers::{
        CallAccount, CallService, LayerOptions, ToolCall,
        stack::{Stack, assemble},
    },
    registry::ToolRegistry,
    result::ToolResult,
};

/// Runs calls of the tools in a registry. The same at both ends of the bus: an agent's registry
/// holds remote tools, a handler's the real ones.
pub struct ToolExecutor {
    registry: Arc<ToolRegistry>,
    stack: Stack,
    account: Option<Arc<CallAccount>>,
    hooks: Vec<Arc<dyn ToolHook>>,
    events: Option<EventSink>,
}

impl ToolExecutor {
    /// Runs the tools of `registry` with default limits, without hooks.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>) -> Self {
        Self::with_layers(registry, LayerOptions::default())
    }

    /// The same with another cap on results.
    #[must_use]
    pub fn with_max_result(registry: Arc<ToolRegistry>, max_bytes: usize) -> Self {
        let layers = LayerOptions { max_result_bytes: max_bytes, ..LayerOptions::default() };
        Self::with_layers(registry, layers)
    }

    /// The same with these layers.
    #[must_use]
    pub fn with_layers(registry: Arc<ToolRegistry>, layers: LayerOptions) -> Self {
        let account = layers.account.clone();
        let stack = assemble(&registry, layers);
        Self { registry, stack, account, hooks: Vec::new(), events: None }
    }

    /// Adds a hook; hooks run in the order they were added.
    #[must_use]
    pub fn hooked(mut self, hook: Arc<dyn ToolHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Tells events to `sink`.
    #[must_use]
    pub fn watched(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// The tools it runs.
    #[must_use]
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        &self.registry
    }

    /// Where its calls are counted, if anywhere.
    #[must_use]
    pub fn account(&self) -> Option<&Arc<CallAccount>> {
        self.account.as_ref()
    }

    /// Runs one call to its end. The tool is looked up now, and called when the future is polled.
    ///
    /// # Errors
    /// See [`ToolFailure`]. A failure in the tool's own words is a result, not an error.
    ///
    /// # Cancellation
    /// Dropping the future drops the tool's; cancelling the context's token does the same and
    /// tells hooks and watchers how it ended.
    pub fn execute(
        &self,
        call: ToolCall,
    ) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        match self.hooks.is_empty() && self.events.is_none() {
            true => Either::Left(self.call(call)),
            false => Either::Right(Box::pin(self.execute_watched(call))),
        }
    }

    fn call(&self, call: ToolCall) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        let ended = self.stack.call(call);
        ended.inspect_err(|failure| debug!(error = %failure.chain(), "the call failed"))
    }

    /// The same among hooks and events.
    async fn execute_watched(&self, mut call: ToolCall) -> Result<ToolResult, ToolFailure> {
        for hook in &self.hooks {
            let verdict = hook.before_execution(&call.context, &call.arguments).await;
            if let Verdict::Refuse { reason } = verdict {
                info!(tool_call_id = %call.context.tool_call_id, tool = %call.context.tool_name,
                    "a hook refused the call");
                return Err(ToolFailure::NotPermitted { reason });
            }
        }
        self.watch_updates(&mut call);
        let context = call.context.clone();
        if let Some(events) = &self.events {
            events(ToolEvent::Started {
                context: context.clone(),
                arguments: call.arguments.clone(),
            });
        }
        let began = Instant::now();
        let ended = self.call(call).await;
        let end = call_end(began, &ended);
        for hook in &self.hooks {
            hook.after_execution(&context, &end).await;
        }
        if let Some(events) = &self.events {
            events(ToolEvent::Finished { context, end });
        }
        ended
    }

    /// Puts hooks and events between the tool's signs of life and whoever asked for them.
    fn watch_updates(&self, call: &mut ToolCall) {
        let asker = call.context.updates.take();
        let (hooks, events) = (self.hooks.clone(), self.events.clone());
        let context = call.context.clone();
        call.context.updates = Some(Arc::new(move |update: ToolUpdate| {
            if !hooks.iter().all(|hook| hook.before_update(&context, &update)) {
                return;
            }
            if let Some(events) = &events {
                events(ToolEvent::Updated { context: context.clone(), update: update.clone() });
            }
            hooks.iter().for_each(|hook| hook.after_update(&context, &update));
            if let Some(asker) = &asker {
                asker(update);
            }
        }));
    }
}

fn call_end(began: Instant, ended: &Result<ToolResult, ToolFailure>) -> CallEnd {
    let elapsed = began.elapsed();
    match ended {
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
