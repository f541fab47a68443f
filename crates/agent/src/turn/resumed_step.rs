//! The tools of a turn that another process began.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use rockbot_llm::ToolDefinition;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::Turn;
use crate::{
    conversation::{
        CallEntry, ConversationEntry, ConversationError, OpenStep, TakeoverEntry, batch_items,
    },
    tool_names::{BATCH, SPAWN_WISPS},
    wisps::{StepWork, WispRequest},
};

/// Time limit for the tools to be available. A process that has just started does not know the tools of
/// handlers and MCP servers until they are announced.
const AVAILABLE_WITHIN: Duration = Duration::from_secs(10);
/// Pause before another request to an MCP server that did not respond.
const PAUSE: Duration = Duration::from_secs(1);

/// Time limit for tools that the turn called before to be offered again. Their handlers may have been lost
/// together with the process of the agent.
const OFFERED_WITHIN: Duration = Duration::from_secs(3);

impl Turn<'_> {
    /// Records that this process is about to make a call or to request the model. A process that is lost
    /// before did nothing to the step.
    pub(super) async fn record_acts(&mut self) -> Result<(), ConversationError> {
        // Model answers and results show it too.
        let acts_already = std::mem::replace(&mut self.start.has_acted, true);
        if acts_already || self.handover.is_cancelled() {
            return Ok(());
        }
        let instance = self.setup.conversations.instance().clone();
        let takeover = TakeoverEntry { instance, attempt: self.start.attempt, is_active: true };
        self.recorder.record(&mut ConversationEntry::Takeover(takeover)).await?;
        Ok(())
    }

    /// Waits until the tools of the calls without a result are available, for a few seconds. A call of a
    /// tool that is not would not reach the handler that may have its result.
    pub(super) async fn find_tools(&mut self, step: &OpenStep) {
        let pending = step.calls.iter().filter(|call| !step.results.contains_key(&call.call));
        let pending: Vec<_> = pending.flat_map(with_batch).collect();
        if let Some(mcp) = &self.setup.mcp {
            let targets = pending.iter().filter_map(|call| call.mcp_target());
            targets.for_each(|target| mcp.activate(self.session_id, target.clone()));
        }
        self.wait_for_tools(AVAILABLE_WITHIN, |turn, _| {
            pending.iter().filter(|call| !turn.is_available(call)).count()
        })
        .await;
    }

    /// Waits until the tools that the turn called before are offered again, for a few seconds. The model
    /// would otherwise go on without them.
    pub(super) async fn find_called_tools(&mut self) {
        let called: BTreeSet<_> =
            self.history.current_calls().map(|call| call.name.clone()).collect();
        self.wait_for_tools(OFFERED_WITHIN, |_, offered| {
            called.iter().filter(|name| offered.iter().all(|tool| tool.name != **name)).count()
        })
        .await;
    }

    /// Waits until no tool is missing, at most for `within`. `missing` counts the missing ones, with the
    /// definitions that the model would be offered.
    async fn wait_for_tools(
        &mut self,
        within: Duration,
        missing: impl Fn(&Self, &[ToolDefinition]) -> usize,
    ) {
        let mut changes = self.setup.shared.subscribe();
        let deadline = self.deadline.min(Instant::now() + within);
        loop {
            changes.mark_unchanged();
            let listed = tokio::select! {
                biased;
                () = self.cancellation.cancelled() => return,
                () = self.handover.cancelled() => return,
                () = sleep_until(deadline) => None,
                (offered, names) = self.setup.tools(self.session_id, &self.scope) => {
                    Some((offered, names))
                }
            };
            let offered = listed.map(|(offered, names)| {
                self.names = names;
                offered
            });
            let offered = offered.unwrap_or_default();
            let missing = missing(self, &offered);
            if missing == 0 {
                return;
            }
            if Instant::now() >= deadline {
                warn!(session_id = %self.session_id, missing, "tools of an interrupted turn not found");
                return;
            }
            info!(session_id = %self.session_id, missing, "waiting for tools of an interrupted turn");
            tokio::select! {
                biased;
                () = self.cancellation.cancelled() => return,
                () = self.handover.cancelled() => return,
                () = sleep_until(deadline) => {}
                _ = changes.changed() => {}
                () = sleep(PAUSE) => {}
            }
        }
    }

    fn is_available(&self, call: &CallEntry) -> bool {
        let Some(name) = self.tool_name(call) else { return false };
        let mcp = self.setup.mcp.as_ref();
        self.setup.registry.get(&name).is_some()
            && mcp.is_none_or(|mcp| mcp.is_server_announced(&name, &call.arguments))
    }

    /// Returns the name of a call's tool in the registry of this process. Returns `None` for an
    /// unavailable tool of an MCP server: the recorded name may be that of another tool.
    pub(super) fn tool_name<'a>(&'a self, call: &'a CallEntry) -> Option<Cow<'a, str>> {
        match &call.tool {
            None => Some(self.names.own(&call.name).into()),
            Some(tool) => match &tool.mcp {
                None => Some(tool.name.as_str().into()),
                Some(target) => self.setup.mcp.as_ref()?.name(target).map(Cow::from),
            },
        }
    }
}

/// Returns a call, with those that it makes.
fn with_batch(call: &CallEntry) -> Vec<CallEntry> {
    if call.name == SPAWN_WISPS {
        return with_steps(call);
    }
    let items = (call.name == BATCH).then(|| batch_items(call).ok()).flatten();
    items.map_or_else(
        || vec![call.clone()],
        |items| items.into_iter().map(|item| item.call).collect(),
    )
}

/// Returns a call of plans, and the calls of their steps. The arguments of these are not complete.
fn with_steps(outer: &CallEntry) -> Vec<CallEntry> {
    let mut calls = vec![outer.clone()];
    let Ok(request) = WispRequest::parse(&outer.arguments) else { return calls };
    for step in request.plans.iter().flat_map(|plan| &plan.steps) {
        if let StepWork::Call { tool, arguments } = step.work() {
            let (name, arguments) = (tool, arguments.to_string());
            calls.push(CallEntry { name, arguments, tool: None, ..outer.clone() });
        }
    }
    calls
}
