//! Spans and metrics of turns and model requests.
//!
//! The spans follow the OpenTelemetry conventions for GenAI: `invoke_agent {agent}` around a turn, `chat
//! {model}` around a model request.

use std::time::Duration;

use metrics::{counter, histogram};
use rockbot_contracts::{AgentName, SessionId, TraceContext, trace, user::TurnOutcome};
use rockbot_llm::{AssembledAnswer, ChatError};
use tokio::time::Instant;
use tracing::{Span, field::Empty, info_span};

/// Returns the span of a turn, as a child of the trace of `requester`.
pub(crate) fn invoke_agent(
    requester: &TraceContext,
    agent: &AgentName,
    session: &SessionId,
) -> Span {
    let span = info_span!(
        target: trace::TARGET,
        "invoke_agent",
        otel.name = format!("invoke_agent {agent}"),
        otel.kind = "internal",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = agent.as_str(),
        gen_ai.conversation.id = session.as_str(),
    );
    trace::continue_from(&span, requester);
    span
}

/// Returns the span of the rest of a turn that another process started: as [`invoke_agent`], with a link to
/// the span of that process.
pub(crate) fn resume_agent(
    requester: &TraceContext,
    first: &TraceContext,
    agent: &AgentName,
    session: &SessionId,
) -> Span {
    let span = invoke_agent(requester, agent, session);
    trace::link(&span, first);
    span
}

/// Returns the label of an outcome in metrics.
pub(crate) fn outcome_label(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit | TurnOutcome::BudgetExceeded => {
            "answered"
        }
        TurnOutcome::Cancelled => "cancelled",
        _ => "failed",
    }
}

/// Records the outcome and duration of a turn.
pub(crate) fn turn_ended(span: &Span, outcome: TurnOutcome, took: Duration) {
    let label = outcome_label(outcome);
    if label == "failed" {
        trace::fail(span, format!("{outcome:?}"));
    }
    counter!("rockbot_agent_turns_total", "outcome" => label).increment(1);
    histogram!("rockbot_agent_turn_duration_seconds").record(took);
}

/// Returns the span of a model request.
pub(crate) fn chat(model: &str, session: &SessionId) -> Span {
    info_span!(
        target: trace::TARGET,
        "chat",
        otel.name = format!("chat {model}"),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.request.model = model,
        gen_ai.conversation.id = session.as_str(),
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    )
}

/// Measures a model request. A request that is dropped without an answer counts as abandoned.
pub(crate) struct ChatMeasurement<'a> {
    span: &'a Span,
    model: &'a str,
    started: Instant,
    status: &'static str,
}

impl<'a> ChatMeasurement<'a> {
    pub(crate) fn start(span: &'a Span, model: &'a str) -> Self {
        Self { span, model, started: Instant::now(), status: "abandoned" }
    }

    pub(crate) fn finish(mut self, answer: &Result<AssembledAnswer, ChatError>) {
        match answer {
            Ok(AssembledAnswer { usage, .. }) => {
                self.status = "ok";
                let Some(usage) = usage else { return };
                // The exporter writes unsigned numbers as text.
                let number = |tokens| i64::try_from(tokens).unwrap_or(i64::MAX);
                self.span.record("gen_ai.usage.input_tokens", number(usage.prompt_tokens));
                self.span.record("gen_ai.usage.output_tokens", number(usage.completion_tokens));
                self.tokens("input", usage.prompt_tokens);
                self.tokens("output", usage.completion_tokens);
            }
            Err(error) => {
                self.status = "error";
                trace::fail(self.span, error.kind());
            }
        }
    }

    // The cardinality is low: models are named in configuration and agent definitions only.
    fn tokens(&self, direction: &'static str, tokens: u64) {
        let labels = [("model", self.model.to_owned()), ("direction", direction.to_owned())];
        counter!("rockbot_llm_tokens_total", &labels).increment(tokens);
    }
}

impl Drop for ChatMeasurement<'_> {
    fn drop(&mut self) {
        if self.status == "abandoned" {
            trace::fail(self.span, self.status);
        }
        let model = self.model.to_owned();
        let labels = [("model", model.clone()), ("status", self.status.to_owned())];
        counter!("rockbot_llm_requests_total", &labels).increment(1);
        let duration = self.started.elapsed();
        histogram!("rockbot_llm_request_duration_seconds", "model" => model).record(duration);
    }
}
