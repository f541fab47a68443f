//! Turns and questions to models, as spans and as counts.
//!
//! Spans are those of OpenTelemetry's conventions for GenAI: `invoke_agent {agent}` around a turn,
//! `chat {model}` around a question.

use std::time::Duration;

use metrics::{counter, histogram};
use rockbot_contracts::{
    AgentName, SessionId,
    trace::{Kind, Span},
    user::TurnOutcome,
};
use rockbot_llm::{AssembledAnswer, ChatError};
use tokio::time::Instant;

/// Of a turn that begins for whoever does `asking`.
pub(crate) fn invoke_agent(asking: &Span, agent: &AgentName, session: &SessionId) -> Span {
    asking.child(Kind::Internal, |span| {
        span.name(format!("invoke_agent {agent}"));
        span.set("gen_ai.operation.name", "invoke_agent".into());
        span.set("gen_ai.agent.name", agent.to_string().into());
        span.set("gen_ai.conversation.id", session.into());
    })
}

/// A turn ended so, after so long.
pub(crate) fn turn_ended(span: &Span, outcome: TurnOutcome, took: Duration) {
    let word = match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit => "answered",
        TurnOutcome::Cancelled => "cancelled",
        _ => "failed",
    };
    if word == "failed" {
        span.fail(format!("{outcome:?}"));
    }
    counter!("rockbot_agent_turns_total", "outcome" => word).increment(1);
    histogram!("rockbot_agent_turn_duration_seconds").record(took);
}

/// Of a question to a model.
pub(crate) fn chat(model: &str, session: &SessionId) -> Span {
    Span::begin(Kind::Client, |span| {
        span.name(format!("chat {model}"));
        span.set("gen_ai.operation.name", "chat".into());
        span.set("gen_ai.request.model", model.to_owned().into());
        span.set("gen_ai.conversation.id", session.into());
    })
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
                self.span.set("gen_ai.usage.input_tokens", usage.prompt_tokens);
                self.span.set("gen_ai.usage.output_tokens", usage.completion_tokens);
                self.tokens("input", usage.prompt_tokens);
                self.tokens("output", usage.completion_tokens);
            }
            Err(error) => {
                self.status = "error";
                self.span.fail(error.kind());
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
            self.span.fail(self.status);
        }
        let model = self.model.to_owned();
        let labels = [("model", model.clone()), ("status", self.status.to_owned())];
        counter!("rockbot_llm_requests_total", &labels).increment(1);
        let took = self.asked.elapsed();
        histogram!("rockbot_llm_request_duration_seconds", "model" => model).record(took);
    }
}
