//! Calls of several tools in one call of the model. Each runs through all layers, with an id, a permission and an
//! approval of its own.

use std::time::Duration;

use rockbot_contracts::{Executed, Spending};
use rockbot_llm::Media;
use rockbot_memory::MemoryOwner;
use rockbot_tools::{ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::{CallRunner, MAX_RESULT_MEDIA, result_lost};
use crate::{
    conversation::{BatchItem, CallEntry, ResultEntry, batch_items},
    strategy::Steering,
    tool_names::{BATCH, SPAWN_WISPS, is_called_alone, starts_work},
    truncation::truncated_with_note,
};

/// Shortest output that is kept when the results of a batch are too long together, in bytes.
const MIN_OUTPUT_BYTES: usize = 64;

/// Results of a batch.
pub(super) struct BatchResults {
    /// The results as the model reads them.
    pub(super) text: String,
    pub(super) media: Vec<Media>,
    /// Spending of turns that the calls started.
    pub(super) spent: Spending,
    /// Number of calls.
    pub(super) calls: u64,
    /// Number of turns that the calls started.
    pub(super) delegations: u64,
}

/// The result of one call of a batch.
struct ItemResult {
    id: Value,
    tool: String,
    elapsed: Duration,
    outcome: Result<String, (&'static str, String)>,
    media: Vec<Media>,
    spent: Spending,
    /// Number of turns that it started.
    delegations: u64,
}

impl ItemResult {
    fn refused(item: &BatchItem, code: &'static str, message: &str) -> Self {
        Self {
            id: item.id.clone(),
            tool: item.call.name.clone(),
            elapsed: Duration::ZERO,
            outcome: Err((code, message.to_owned())),
            media: Vec::new(),
            spent: Spending::default(),
            delegations: 0,
        }
    }

    /// Returns the result for the model, with the text cut at `most` bytes.
    fn to_json(&self, most: usize) -> Value {
        let elapsed = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX);
        let (id, tool) = (&self.id, &self.tool);
        match &self.outcome {
            Ok(output) => json!({"id": id, "tool": tool, "ok": true, "elapsedMs": elapsed,
                "output": truncated_with_note(output, most)}),
            Err((code, message)) => json!({"id": id, "tool": tool, "ok": false,
                "elapsedMs": elapsed,
                "error": {"code": code, "message": truncated_with_note(message, most)}}),
        }
    }
}

impl CallRunner<'_> {
    /// Returns `true` for a call that makes other calls.
    pub(super) fn is_compound(&self, call: &CallEntry) -> bool {
        [BATCH, SPAWN_WISPS].iter().any(|name| self.turn.setup.is_internal(&call.name, name))
    }

    /// Makes the calls of a batch, or runs plans, and records the results as that of the call.
    pub(super) async fn call_compound(&self, position: usize, call: &CallEntry) {
        let started = Instant::now();
        let run = Box::pin(async {
            let results = match call.name.as_str() {
                BATCH => self.run_batch(call).await,
                _ => self.run_wisps(call).await,
            };
            // Turns of steps that were dropped still end.
            let spent = self.child_spending(&call.call, None).await;
            results.map(|mut results| {
                results.spent += spent;
                results
            })
        });
        let results = tokio::select! {
            biased;
            () = self.turn.handover.cancelled() => return,
            results = run => results,
        };
        self.record_batch(position, call, results, started).await;
    }

    async fn record_batch(
        &self,
        position: usize,
        call: &CallEntry,
        results: Result<BatchResults, ToolFailure>,
        started: Instant,
    ) {
        let mut entry = match results {
            Ok(results) => {
                let BatchResults { text, media, spent, calls, delegations } = results;
                let media_count = media.len();
                self.add_media(position, media);
                ResultEntry {
                    media: media_count,
                    child: spent,
                    inner_calls: calls,
                    delegations: Some(delegations),
                    ..ResultEntry::succeeded(call.call.clone(), text)
                }
            }
            Err(failure) => ResultEntry::failed(call.call.clone(), &failure),
        };
        entry.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        entry.mcp = self.turn.setup.take_mcp_use(self.turn.session_id);
        self.record(position, call, entry).await;
    }

    /// Makes the calls of a batch under the agent's strategy.
    pub(super) async fn run_batch(&self, outer: &CallEntry) -> Result<BatchResults, ToolFailure> {
        let items = batch_items(outer).map_err(|error| ToolFailure::invalid(error.to_string()))?;
        let context = self.context(outer);
        self.run_attempt(outer, context).await?;
        let turn = self.turn;
        let steer = || {
            let is_over = turn.cancellation.is_cancelled()
                || turn.handover.is_cancelled()
                || Instant::now() >= turn.deadline;
            if is_over { Steering::Stop } else { Steering::Continue }
        };
        let strategy = turn.setup.definition.strategy;
        let ran = strategy.run(items.iter().collect(), |item| self.run_item(item), steer).await;
        let not_run = |item: &BatchItem| {
            let skipped = if turn.may_have_run(&item.call.call) {
                result_lost().model_text()
            } else {
                "(tool skipped)".to_owned()
            };
            ItemResult::refused(item, "EXECUTION_ERROR", &skipped)
        };
        let results: Vec<_> = ran
            .into_iter()
            .zip(&items)
            .map(|(result, item)| result.unwrap_or_else(|| not_run(item)))
            .collect();
        Ok(collected(results, turn.setup.limits.result_bytes))
    }

    async fn run_item(&self, item: &BatchItem) -> ItemResult {
        let BatchItem { id, call } = item;
        if is_called_alone(&call.name) {
            return ItemResult::refused(
                item,
                "INTERNAL_NOT_ALLOWED",
                "this tool cannot be called in a batch; call it alone",
            );
        }
        let call = CallEntry {
            tool: self.turn.setup.called_tool(&self.turn.names, &call.name),
            ..call.clone()
        };
        let started = Instant::now();
        let context = self.context(&call);
        let owner = MemoryOwner::from_context(&context);
        let tool_name = context.tool_name.clone();
        let result = self.run_attempt(&call, context).await;
        let spent = self.child_spending(&call.call, result.as_ref().ok()).await;
        let delegations = delegations_of(&call.name, &result);
        let (outcome, media) = match result {
            Ok(result) => {
                let (text, media) = self.render(&tool_name, &call.call, &owner, &result).await;
                let outcome =
                    if result.is_error { Err(("EXECUTION_ERROR", text)) } else { Ok(text) };
                (outcome, media)
            }
            Err(failure) => (Err((code_of(&failure), failure.model_text())), Vec::new()),
        };
        let (id, tool, elapsed) = (id.clone(), call.name, started.elapsed());
        ItemResult { id, tool, elapsed, outcome, media, spent, delegations }
    }
}

/// Returns the number of turns that a call with a result started, or may have started.
pub(super) fn delegations_of(tool: &str, result: &Result<ToolResult, ToolFailure>) -> u64 {
    let may_have_run = !matches!(result, Err(failure) if failure.executed() == Executed::No);
    u64::from(may_have_run && starts_work(tool))
}

fn code_of(failure: &ToolFailure) -> &'static str {
    match failure {
        ToolFailure::NotFound { .. } if failure.executed() == Executed::No => "UNKNOWN_TOOL",
        _ => "EXECUTION_ERROR",
    }
}

/// Returns the results in the order of the calls, in at most `limit` bytes.
fn collected(results: Vec<ItemResult>, limit: usize) -> BatchResults {
    let calls = results.len();
    let mut spent = Spending::default();
    results.iter().for_each(|result| spent += result.spent);
    let delegations = results.iter().map(|result| result.delegations).sum();
    let mut most = usize::MAX;
    let text = loop {
        let shown: Vec<_> = results.iter().map(|result| result.to_json(most)).collect();
        let text = json!({"results": shown}).to_string();
        if text.len() <= limit || most <= MIN_OUTPUT_BYTES {
            break text;
        }
        // Escaped characters need more bytes in JSON than in the text.
        most = (most / 2).min(limit / calls.max(1)).max(MIN_OUTPUT_BYTES);
    };
    let media = results.into_iter().flat_map(|result| result.media);
    let media = media.take(MAX_RESULT_MEDIA).collect();
    BatchResults { text, media, spent, calls: calls as u64, delegations }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> ItemResult {
        ItemResult {
            id: json!(1),
            tool: "read".to_owned(),
            elapsed: Duration::from_millis(5),
            outcome: Ok(text.to_owned()),
            media: Vec::new(),
            spent: Spending { model_calls: 1, ..Spending::default() },
            delegations: 1,
        }
    }

    #[test]
    fn results_share_the_limit_of_one_result() {
        let long = "\u{1}".repeat(100_000);
        let results = collected(vec![result("short"), result(&long), result(&long)], 30_000);
        assert!(results.text.len() <= 30_000, "{}", results.text.len());
        let BatchResults { calls, spent, delegations, .. } = &results;
        assert_eq!((*calls, spent.model_calls, *delegations), (3, 3, 3));
        let parsed: Value = serde_json::from_str(&results.text).unwrap();
        assert_eq!(parsed["results"][0]["output"], "short");
        let cut = parsed["results"][2]["output"].as_str().unwrap();
        assert!(cut.contains("(truncated: "), "{cut}");
    }

    #[test]
    fn call_that_did_not_run_is_no_delegation() {
        let ran = Ok(ToolResult::error("failed"));
        assert_eq!(delegations_of("agent__writer", &ran), 1);
        assert_eq!(delegations_of("read_file", &ran), 0);
        let refused = Err(ToolFailure::NotPermitted { reason: "no".to_owned() });
        assert_eq!(delegations_of("agent__writer", &refused), 0);
        let unknown = Err(ToolFailure::OutcomeUnknown { message: "lost".to_owned() });
        assert_eq!(delegations_of("agent__writer", &unknown), 1);
    }

    #[test]
    fn error_has_a_code() {
        let failed = ItemResult { outcome: Err(("UNKNOWN_TOOL", "no".to_owned())), ..result("") };
        let expected = json!({"id": 1, "tool": "read", "ok": false, "elapsedMs": 5,
            "error": {"code": "UNKNOWN_TOOL", "message": "no"}});
        assert_eq!(failed.to_json(usize::MAX), expected);
    }
}
