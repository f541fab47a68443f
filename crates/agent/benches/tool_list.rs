//! Benchmark of a tool list with 200 tools: `cargo bench -p rockbot-agent --bench tool_list`.

#![allow(clippy::print_stdout, clippy::expect_used, reason = "a benchmark prints and may panic")]

use std::{hint::black_box, sync::Arc, time::Instant};

use futures_util::future::BoxFuture;
use rockbot_agent::{ToolList, ToolListLog};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolFilter, ToolHints, ToolProfile, ToolRegistration,
    ToolRegistry, ToolResult, ToolScope, ToolSource,
};
use serde_json::{Value, json};

const TOOLS: usize = 200;
const ROUNDS: usize = 2000;

struct Named(ToolRegistration);

impl Tool for Named {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(std::future::ready(Ok(ToolResult::text("ran"))))
    }
}

fn tool(number: usize) -> Named {
    let property = |kind: &str| json!({"type": kind, "description": "What to do it with."});
    Named(ToolRegistration {
        // Every tenth name is too long for the provider.
        name: format!(
            "tool_{number}{}",
            "_x".repeat(if number.is_multiple_of(10) { 40 } else { 5 })
        ),
        label: None,
        description: "Does something useful with its arguments and returns the result.".into(),
        tool_description: None,
        parameters: json!({"type": "object", "required": ["path"], "properties": {
            "path": property("string"), "lines": property("integer"), "all": property("boolean"),
            "mode": {"type": "string", "enum": ["one", "two", "three"]}}}),
        source: if number.is_multiple_of(3) { ToolSource::Web } else { ToolSource::Files },
        hints: ToolHints::default(),
        timeout_ms: None,
    })
}

fn main() {
    let registry = ToolRegistry::new();
    for number in 0..TOOLS {
        registry.register(Arc::new(tool(number))).expect("registered");
    }
    let filter = ToolFilter { deny: vec!["*_secret_*".into()], ..ToolFilter::default() };
    let scope = ToolScope::new(ToolProfile::subagent(), filter);
    let log = ToolListLog::default();
    let mut durations: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            let mut list = ToolList::new(&scope, TOOLS);
            registry.all().iter().for_each(|tool| list.add(tool));
            black_box(list.finish(64, &log));
            started.elapsed()
        })
        .collect();
    durations.sort();
    println!(
        "list of {TOOLS} tools: median {:?}, p99 {:?}",
        durations[ROUNDS / 2],
        durations[ROUNDS * 99 / 100]
    );
}
