//! Turns and questions to models, as spans and as counts.
//!
//! Spans are those of OpenTelemetry's conventions for GenAI: `invoke_agent {agent}` around a turn,
//! `chat {model}` around a question.

use std::time::Duration;

use metrics::{counter, histogram};
use rockbot_contracts::{AgentName, SessionId, user::TurnOutcome};
use rockbot_llm::{AssembledAnswer, ChatError};
use tracing::{Span, debug_span, field::Empty};

/// Of a turn that begins for whoever runs now.
pub(crate) fn invoke_agent(agent: &AgentName, session: &SessionId) -> Span {
    debug_span!(
        "invoke_agent",
        otel.name = format_args!("invoke_agent {agent}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        error.type = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = %agent,
        gen_ai.conversation.id = %session,
    )
}

/// A turn ended so, after so long.
pub(crate) fn turn_ended(span: &Span, outcome: TurnOutcome, took: Duration) {
    let word = match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit => "answered",
        TurnOutcome::Cancelled => "cancelled",
        _ => "failed",
    };
    if word == "failed" {
        span.record("error.type", format!("{outcome:?}"));
        span.record("otel.status_code", "ERROR");
    }
    counter!("rockbot_agent_turns_total", "outcome" => word).increment(1);
    histogram!("rockbot_agent_turn_duration_seconds").record(took);
}

/// Of a question to a model.
pub(crate) fn chat(model: &str, session: &SessionId) -> Span {
    debug_span!(
        "chat",
        otel.name = format_args!("chat {model}"),
        otel.kind = "client",
        otel.status_code = Empty,
        error.type = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.request.model = model,
        gen_ai.conversation.id = %session,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    )
}

/// A model answered, or did not.
pub(crate) fn model_answered(
    span: &Span,
    model: &str,
    answer: &Result<AssembledAnswer, ChatError>,
    took: Duration,
) {
    // Models are named by configuration and by agents' definitions, so there are few.
    let model = model.to_owned();
    let status = if answer.is_ok() { "ok" } else { "error" };
    let labels = [("model", model.clone()), ("status", status.to_owned())];
    counter!("rockbot_llm_requests_total", &labels).increment(1);
    histogram!("rockbot_llm_request_duration_seconds", "model" => model.clone()).record(took);
    match answer {
        Ok(AssembledAnswer { usage: Some(usage), .. }) => {
            span.record("gen_ai.usage.input_tokens", usage.prompt_tokens);
            span.record("gen_ai.usage.output_tokens", usage.completion_tokens);
            let tokens = |direction: &'static str| {
                counter!("rockbot_llm_tokens_total", "model" => model.clone(),
                    "direction" => direction)
            };
            tokens("input").increment(usage.prompt_tokens);
            tokens("output").increment(usage.completion_tokens);
        }
        Ok(_) => {}
        Err(error) => {
            span.record("error.type", error.kind());
            span.record("otel.status_code", "ERROR");
        }
    }
}
