//! The smallest tools that a test can count.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde_json::{Value, json};

/// Counts its calls, and those of its clones.
#[derive(Clone)]
pub(crate) struct Counter {
    registration: ToolRegistration,
    calls: Arc<AtomicUsize>,
}

impl Counter {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(name, ToolSource::Internal)
    }

    pub(crate) fn of(name: &str, source: ToolSource) -> Self {
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a tool of a test".to_owned(),
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

impl Tool for Counter {
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
