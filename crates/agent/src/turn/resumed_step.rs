//! The tools of a step that another process began.

use std::{borrow::Cow, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::Turn;
use crate::conversation::{CallEntry, OpenStep};

/// Time limit for the tools to be available. A process that has just started does not know the tools of
/// handlers and MCP servers until they are announced.
const AVAILABLE_WITHIN: Duration = Duration::from_secs(10);
/// Pause before another request to an MCP server that did not respond.
const PAUSE: Duration = Duration::from_secs(1);

impl Turn<'_> {
    /// Waits until the tools of the calls without a result are available, for a few seconds. A call of a
    /// tool that is not would not reach the handler that may have its result.
    pub(super) async fn find_tools(&mut self, step: &OpenStep) {
        let pending: Vec<_> =
            step.calls.iter().filter(|call| !step.results.contains_key(&call.call)).collect();
        let mut changes = self.setup.shared.subscribe();
        let deadline = self.deadline.min(Instant::now() + AVAILABLE_WITHIN);
        loop {
            changes.mark_unchanged();
            if let Some(mcp) = &self.setup.mcp {
                let targets = pending.iter().filter_map(|call| call.mcp_target());
                targets.for_each(|target| mcp.activate(self.session_id, target.clone()));
            }
            let listed = tokio::select! {
                biased;
                () = self.cancellation.cancelled() => return,
                () = self.handover.cancelled() => return,
                () = sleep_until(deadline) => None,
                (_, names) = self.setup.tools(self.session_id, &self.scope) => Some(names),
            };
            if let Some(names) = listed {
                self.names = names;
            }
            let missing = pending.iter().filter(|call| !self.is_available(call)).count();
            if missing == 0 {
                return;
            }
            if Instant::now() >= deadline {
                warn!(session_id = %self.session_id, missing, "tools of an interrupted step not found");
                return;
            }
            info!(session_id = %self.session_id, missing, "waiting for tools of an interrupted step");
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
        let name = self.tool_name(call);
        name.is_some_and(|name| self.setup.registry.get(&name).is_some())
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
