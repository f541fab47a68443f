//! Turns and questions to models, as spans and as counts.
//!
//! Spans are those of OpenTelemetry's conventions for GenAI: `invoke_agent {agent}` around a turn,
//! `chat {model}` around a question.

use std::time::Duration;

use metrics::{counter, histogram};
use rockbot_contracts::{AgentName, SessionId, TraceContext, trace, user::TurnOutcome};
use rockbot_llm::{AssembledAnswer, ChatError};
use tokio::time::Instant;
use tracing::{Span, field::Empty, info_span};

/// Returns the span of a turn that belongs to the trace of `requester`.
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

/// A turn ended so, after so long.
pub(crate) fn turn_ended(span: &Span, outcome: TurnOutcome, took: Duration) {
    let word = match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit => "answered",
        TurnOutcome::Cancelled => "cancelled",
        _ => "failed",
    };
    if word == "failed" {
        trace::fail(span, format!("{outcome:?}"));
    }
    counter!("rockbot_agent_turns_total", "outcome" => word).increment(1);
    histogram!("rockbot_agent_turn_duration_seconds").record(took);
}

/// Returns the span of a request to a model.
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

/// A question to a model, counted when it is answered, and also when nobody waits any more: a model
/// that never answers is one that fails.
pub(crate) struct Question<'a> {
    span: &'a Span,
    model: &'a str,
    asked: Instant,
    status: &'static str,
}

impl<'a> Question<'a> {
    pub(crate) fn begin(span: &'a Span, model: &'a str) -> Self {
        Self { span, model, asked: Instant::now(), status: "abandoned" }
    }

    pub(crate) fn ended(mut self, answer: &Result<AssembledAnswer, ChatError>) {
        match answer {
            Ok(AssembledAnswer { usage, .. }) => {
                self.status = "ok";
                let Some(usage) = usage else { return };
                // An unsigned number would be exported as text.
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

    // Models are named by configuration and by agents' definitions, so there are few.
    fn tokens(&self, direction: &'static str, tokens: u64) {
        let labels = [("model", self.model.to_owned()), ("direction", direction.to_owned())];
        counter!("rockbot_llm_tokens_total", &labels).increment(tokens);
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self.status == "abandoned" {
            trace::fail(self.span, self.status);
        }
        let model = self.model.to_owned();
        let labels = [("model", model.clone()), ("status", self.status.to_owned())];
        counter!("rockbot_llm_requests_total", &labels).increment(1);
        let took = self.asked.elapsed();
        histogram!("rockbot_llm_request_duration_seconds", "model" => model).record(took);
    }
}
