//! A tool that counts its calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde_json::{Value, json};

/// Counts its calls; clones share the counter.
#[derive(Clone)]
pub(crate) struct CountingTool {
    registration: ToolRegistration,
    calls: Arc<AtomicUsize>,
}

impl CountingTool {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_source(name, ToolSource::Internal)
    }

    pub(crate) fn with_source(name: &str, source: ToolSource) -> Self {
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a tool for tests".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        Self { registration, calls: Arc::default() }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Tool for CountingTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(ToolResult::text("ran"))))
    }
}
