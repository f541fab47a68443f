//! A definition's word on tools, kept where calls are run: a model may name a tool that it was
//! never offered.

use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};
use rockbot_tools::{ToolContext, ToolHook, ToolRegistry, Verdict};

use crate::definition::ToolFilter;

/// Refuses calls of tools that the definition does not permit.
pub(super) struct PermittedTools {
    filter: ToolFilter,
    registry: Arc<ToolRegistry>,
}

impl PermittedTools {
    pub(super) fn new(filter: ToolFilter, registry: Arc<ToolRegistry>) -> Self {
        Self { filter, registry }
    }

    fn judge(&self, called: &str) -> Verdict {
        // By the tool's own name: an alias must not be a way around.
        match self.registry.get(called) {
            Some(tool) if !self.filter.permits(&tool.registration().name) => {
                let reason = "this agent may not use that tool; use another".to_owned();
                Verdict::Refuse { reason }
            }
            _ => Verdict::Allow,
        }
    }
}

impl ToolHook for PermittedTools {
    fn before_execution<'a>(
        &'a self,
        context: &'a ToolContext,
        _arguments: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(ready(self.judge(&context.tool_name)))
    }
}
