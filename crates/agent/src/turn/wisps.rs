//! Plans that a call runs: their steps one after the other, and the plans at the same time.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{MessageId, SessionId, Spending, UserMessage, user::TurnOutcome};
use rockbot_memory::{MemoryOwner, SaveOptions};
use rockbot_tools::{ToolFailure, ToolFilter};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::{
    batch::{BatchResults, delegations_of},
    calls::{CANCEL_GRACE, CallRunner},
};
use crate::{
    conversation::CallEntry,
    derived_id::derived_id,
    event::TurnAnswer,
    origin::{StepLimits, TurnOrigin},
    tool_names::{SPAWN_WISPS, is_called_alone, starts_work},
    wisps::{
        FailureAction, FailureCategory, StepFailure, StepValues, StepWork, TemplateError, WispPlan,
        WispRequest, WispResult, WispStep, results_text, step_call,
    },
};

/// An `Llm` step gets one of this number of parts of the rest of the budget.
const BUDGET_PARTS: u64 = 4;
/// Model calls with tools of an `Llm` step.
const MAX_ITERATIONS: u32 = 10;
/// Longest result of a step that later steps can use, in bytes.
const MAX_VALUE_BYTES: usize = 256 * 1024;
/// Time that results are stored.
const KEEP: Duration = Duration::from_secs(60 * 60);
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Outcome of a step that did not report in time, or that another process may have run.
const MAY_HAVE_RUN: &str = "this step may have run, and its outcome is unknown";
/// Instruction before the prompt of an `Llm` step.
const ROLE: &str = "You do one step of a plan. Do it, and answer with its result only.";

/// A plan that runs.
struct Run<'a> {
    outer: &'a CallEntry,
    plan: &'a WispPlan,
    number: usize,
    id: String,
    until: Instant,
}

/// Calls and spending of a plan.
#[derive(Default)]
struct Used {
    calls: u64,
    /// Turns that its steps started, or may have started.
    delegations: u64,
    spent: Spending,
}

impl CallRunner<'_> {
    /// Runs the plans of a call.
    pub(super) async fn run_wisps(&self, outer: &CallEntry) -> Result<BatchResults, ToolFailure> {
        let request = WispRequest::parse(&outer.arguments).map_err(ToolFailure::invalid)?;
        self.run_attempt(outer, self.context(outer)).await?;
        let written: Value = serde_json::from_str(&outer.arguments).unwrap_or_default();
        if !self.turn.setup.repetitions.count(derived_id(&[&written.to_string()], 16)) {
            let reason =
                "equal plans ran 30 times within 5 minutes; change them, or stop".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        }
        let started = Instant::now();
        let until = self.turn.deadline.min(started + request.timeout);
        let runs = request.plans.iter().enumerate().map(|(number, plan)| {
            let id = derived_id(&["wisp", outer.call.as_str(), &number.to_string()], 8);
            self.run_plan(Run { outer, plan, number, id: format!("wisp-{id}"), until })
        });
        let runs: Vec<_> = runs.collect();
        let parallel = runs.len().max(1);
        let (results, used): (Vec<_>, Vec<_>) = stream::iter(runs).buffered(parallel).unzip().await;
        let mut spent = Spending::default();
        used.iter().for_each(|used: &Used| spent += used.spent);
        let calls = used.iter().map(|used| used.calls).sum();
        let delegations = used.iter().map(|used| used.delegations).sum();
        let took = started.elapsed();
        let text = results_text(&results, took);
        self.save_summary(outer, &results).await;
        Ok(BatchResults { text, media: Vec::new(), spent, calls, delegations })
    }

    async fn run_plan(&self, run: Run<'_>) -> (WispResult, Used) {
        let started = Instant::now();
        let (mut values, mut keys, mut used) = (StepValues::default(), Vec::new(), Used::default());
        let (mut last, mut failed, mut steps_completed, mut at) = (String::new(), None, 0, 0);
        let mut skipped = Vec::new();
        while let Some(step) = run.plan.steps.get(at) {
            // A call whose time is over reports within its grace whether it ran.
            let limit = run.until + CANCEL_GRACE;
            let outcome = timeout_at(limit, self.run_step(&run, step, &values, &mut used));
            match outcome.await.unwrap_or_else(|_| Err(late(MAY_HAVE_RUN))) {
                Ok(result) => {
                    let key = self.save(&run.id, &step.id, &result).await;
                    keys.extend(key.clone());
                    values.add(&step.id, result.clone(), key.unwrap_or_default());
                    (last, steps_completed, at) = (result, steps_completed + 1, at + 1);
                }
                Err(failure) => match step.failure_action() {
                    FailureAction::SkipTo(id) if Instant::now() < run.until => {
                        let steps = &run.plan.steps;
                        let later = steps.iter().position(|step| step.id == id);
                        at = later.unwrap_or(steps.len());
                        skipped.push((step.id.clone(), failure));
                    }
                    _ => {
                        failed = Some(failure);
                        break;
                    }
                },
            }
        }
        let result = WispResult {
            id: run.id,
            description: run.plan.description.clone(),
            outcome: failed.map_or(Ok(last), Err),
            skipped,
            keys,
            steps_completed,
            step_count: run.plan.steps.len(),
            took: started.elapsed(),
        };
        (result, used)
    }

    async fn run_step(
        &self,
        run: &Run<'_>,
        step: &WispStep,
        values: &StepValues,
        used: &mut Used,
    ) -> Result<String, StepFailure> {
        let call = step_call(&run.outer.call, run.number, &step.id).ok_or_else(|| {
            let message = "no id for the step; call again".to_owned();
            StepFailure { category: FailureCategory::External, message }
        })?;
        let what_ran =
            if self.turn.may_have_run(&call) { MAY_HAVE_RUN } else { "this step did not run" };
        if self.turn.cancellation.is_cancelled() {
            let message = format!("cancelled; {what_ran}");
            return Err(StepFailure { category: FailureCategory::External, message });
        }
        if Instant::now() >= run.until {
            return Err(late(what_ran));
        }
        let invalid = |error: TemplateError| StepFailure {
            category: FailureCategory::Data,
            message: error.to_string(),
        };
        let result = match step.work() {
            StepWork::Call { tool, arguments } => {
                let arguments = values.expand(&arguments).map_err(invalid)?.to_string();
                let (id, name) = (step.id.clone(), tool);
                let entry = CallEntry { call, id, name, tool: None, arguments };
                self.call_tool(run, entry, used).await?
            }
            StepWork::Ask { prompt } => {
                let prompt = values.expand_prompt(&prompt).map_err(invalid)?;
                let call = call.as_str().to_owned();
                self.ask_model(run, &call, &prompt, used).await?
            }
        };
        let cut = result.floor_char_boundary(MAX_VALUE_BYTES);
        Ok(result[..cut].to_owned())
    }

    async fn call_tool(
        &self,
        run: &Run<'_>,
        entry: CallEntry,
        used: &mut Used,
    ) -> Result<String, StepFailure> {
        if is_called_alone(&entry.name) {
            let message = format!("{} cannot be called in a plan", entry.name);
            return Err(StepFailure { category: FailureCategory::Structural, message });
        }
        used.calls += 1;
        // Counted first: at the time limit, the step is dropped while it runs.
        let before = used.delegations;
        used.delegations += u64::from(starts_work(&entry.name));
        let tool = self.turn.setup.called_tool(&self.turn.names, &entry.name);
        let entry = CallEntry { tool, ..entry };
        let mut context = self.context(&entry);
        context.deadline = context.deadline.min(run.until);
        context.awaits_work = true;
        let result = self.run_attempt(&entry, context).await;
        used.delegations = before + delegations_of(&entry.name, &result);
        used.spent += self.child_spending(&entry.call, result.as_ref().ok()).await;
        let result = result.map_err(|failure| StepFailure::from(&failure))?;
        let text = result.to_text().into_owned();
        if result.is_error {
            return Err(StepFailure { category: FailureCategory::External, message: text });
        }
        Ok(text)
    }

    /// Runs a turn of the same agent, in a conversation of its own.
    async fn ask_model(
        &self,
        run: &Run<'_>,
        call: &str,
        prompt: &str,
        used: &mut Used,
    ) -> Result<String, StepFailure> {
        let turn = self.turn;
        let external = |message: String| {
            let category = FailureCategory::External;
            StepFailure { category, message }
        };
        let ids = MessageId::new(call).ok().zip(SessionId::new(call).ok());
        let Some(((message, session), host)) = ids.zip(turn.setup.host()) else {
            return Err(external("the agent is shutting down".to_owned()));
        };
        let grant = turn.meter.budget().grant(&run.outer.call, BUDGET_PARTS);
        let grant = Arc::new(grant.map_err(|error| external(error.to_string()))?);
        used.delegations += 1;
        let parent = turn.as_parent(grant.clone(), run.until);
        let guard = parent.guard();
        let origin = TurnOrigin::from_parent(parent);
        let tools = step_filter(&run.plan.tools);
        let limits = StepLimits { tools, iterations: MAX_ITERATIONS, prompt: None, model: None };
        let (sender, step) = (turn.origin.sender.clone(), Some(Arc::new(limits)));
        let origin = TurnOrigin { sender, step, ..origin.with_message(message) };
        let message = UserMessage::new(session, format!("{ROLE}\n\n{prompt}"));
        let answered = host.start_turn(origin, message, Arc::new(|_| ())).await;
        drop(guard);
        let Ok(TurnAnswer { text, outcome, usage, ended, .. }) = answered else {
            return Err(external("the agent is shutting down".to_owned()));
        };
        if let Some(usage) = usage {
            grant.budget().settle(usage.turn);
        }
        let judgment = |message| StepFailure { category: FailureCategory::Judgment, message };
        match outcome {
            _ if !ended.is_answer() => Err(external(text)),
            TurnOutcome::Completed => Ok(text),
            TurnOutcome::IterationLimit | TurnOutcome::ModelFailed => Err(judgment(text)),
            _ => Err(external(text)),
        }
    }

    /// Stores the result of a step. Returns its key, if it is stored.
    async fn save(&self, wisp: &str, step: &str, result: &str) -> Option<String> {
        let key = format!("session/{}/wisp/{wisp}/{step}/output", self.turn.session_id);
        self.save_text(&key, result).await.then_some(key)
    }

    async fn save_summary(&self, outer: &CallEntry, results: &[WispResult]) {
        let id = derived_id(&["wisps", outer.call.as_str()], 8);
        let failed = results.iter().filter(|one| one.outcome.is_err()).count();
        let wisps: Vec<_> = results.iter().map(WispResult::to_json).collect();
        let summary = json!({"batchId": id, "total": results.len(),
            "succeeded": results.len() - failed, "failed": failed, "wisps": wisps});
        let key = format!("session/{}/wisp/batch-{id}/summary", self.turn.session_id);
        self.save_text(&key, &summary.to_string()).await;
    }

    async fn save_text(&self, key: &str, text: &str) -> bool {
        let Some(memory) = &self.turn.setup.large_results.memory else { return false };
        let agent = self.turn.setup.definition.name.clone();
        let owner = MemoryOwner { agent, session: self.turn.session_id.clone() };
        let text = &text[..text.floor_char_boundary(memory.limits().entry_bytes)];
        let saved = memory.save(&owner, key, text, SaveOptions::with_ttl(KEEP));
        match timeout(SAVE_TIMEOUT, saved).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                debug!(%error, "result of a plan not stored");
                false
            }
            Err(_) => false,
        }
    }
}

/// Returns the tools that a step of a plan may use: the listed ones, and working memory.
fn step_filter(tools: &[String]) -> ToolFilter {
    let mut allow = tools.to_vec();
    allow.push("*_working_memory".to_owned());
    ToolFilter { allow, deny: vec![SPAWN_WISPS.to_owned()] }
}

fn late(what_ran: &str) -> StepFailure {
    let message = format!("the time limit of the plans is over; {what_ran}");
    StepFailure { category: FailureCategory::External, message }
}
