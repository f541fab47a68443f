//! Conversations that are much longer than the model's context window.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use rockbot_agent::ModelBehavior;
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason,
    ToolChoice, Usage,
};

use crate::harness::{AgentFixture, Behavior, ProbeTool, RecordingModel, calls, send, text_events};

const WINDOW: usize = 16_000;
const TURNS: usize = 300;
const BUDGET_EXCEEDED: &str = "(tool failed: context window budget exceeded)";

/// A model that calls tools, depending on the number of the turn, and rejects requests over [`WINDOW`]
/// tokens of its own tokenizer.
struct LimitedModel {
    /// Characters per token.
    chars_per_token: usize,
    accepted: AtomicUsize,
    rejected: AtomicUsize,
    /// Current turn, and the number of its requests.
    requests: Mutex<(String, usize)>,
}

impl LimitedModel {
    fn tokens(&self, request: &ChatRequest) -> usize {
        let message = |message: &ChatMessage| match message {
            ChatMessage::System(text) | ChatMessage::User(text) => text.chars().count(),
            ChatMessage::Tool { content, .. } => content.chars().count(),
            ChatMessage::Media(_) => 0,
            ChatMessage::Assistant { text, tool_calls } => {
                let call = |call: &rockbot_llm::ToolCallRequest| {
                    call.id.len() + call.name.len() + call.arguments.len()
                };
                text.chars().count() + tool_calls.iter().map(call).sum::<usize>()
            }
        };
        let texts: usize = request.messages.iter().map(message).sum();
        let tool = |tool: &rockbot_llm::ToolDefinition| {
            tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
        };
        let tools: usize = request.tools.iter().map(tool).sum();
        (texts + tools) / self.chars_per_token + 4 * request.messages.len()
    }

    fn answer(&self, request: &ChatRequest) -> Result<Vec<ChatEvent>, ChatError> {
        let tokens = self.tokens(request);
        if tokens > WINDOW {
            self.rejected.fetch_add(1, Ordering::SeqCst);
            let message = format!("{tokens} tokens are over the context length of {WINDOW}");
            return Err(ChatError::ContextOverflow { message });
        }
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let mut users = request.messages.iter().filter_map(|message| match message {
            ChatMessage::User(text) => Some(text.as_str()),
            _ => None,
        });
        let turn = users.next_back().expect("a user message").lines().next().unwrap_or_default();
        let requests = {
            let mut requests = self.requests.lock().unwrap();
            if requests.0 != turn {
                *requests = (turn.to_owned(), 0);
            }
            requests.1 += 1;
            requests.1
        };
        let number: usize = turn.trim_start_matches("turn ").parse().expect("a turn");
        let mut events = match number % 5 {
            _ if request.tool_choice == ToolChoice::None => {
                text_events("That is all I could read.")
            }
            0 => text_events("Nothing to do."),
            // Calls tools until the iteration limit.
            1 => calls(&[("a", "short", "")], FinishReason::ToolCalls),
            2 if requests < 3 => calls(&[("a", "huge", "")], FinishReason::ToolCalls),
            // Each one fits, but not all of them.
            3 if requests == 1 => {
                let long = ["a", "b", "c", "d", "e"].map(|id| (id, "long", ""));
                calls(&long, FinishReason::ToolCalls)
            }
            _ => text_events(&"A long text. ".repeat(200)),
        };
        let usage = Usage { prompt_tokens: tokens as u64, ..Usage::default() };
        events.insert(0, ChatEvent::Usage(usage));
        Ok(events)
    }
}

struct Model(Arc<LimitedModel>);

impl ChatModel for Model {
    fn name(&self) -> &str {
        "limited"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let answer = self.0.answer(&request);
        async { Ok(stream::iter(answer?.into_iter().map(Ok)).boxed()) }.boxed()
    }
}

/// Counts of a conversation.
struct Counts {
    accepted: usize,
    rejected: usize,
    /// Turns that ended because a tool result exceeded the context window.
    turns_over_budget: usize,
}

/// Runs a conversation of [`TURNS`] turns, each of which must end with an answer.
async fn run_conversation(chars_per_token: usize, is_window_known: bool) -> Counts {
    let limited = Arc::new(LimitedModel {
        chars_per_token,
        accepted: AtomicUsize::new(0),
        rejected: AtomicUsize::new(0),
        requests: Mutex::default(),
    });
    let model = RecordingModel::new(Model(limited.clone()));
    let mut fixture = AgentFixture::new()
        .with(&ProbeTool::new("short", Behavior::LongText(2_000)))
        .with(&ProbeTool::new("long", Behavior::LongText(12_000)))
        .with(&ProbeTool::new("huge", Behavior::LongText(60_000)));
    let window = is_window_known.then_some(u32::try_from(WINDOW).unwrap());
    fixture.behavior = ModelBehavior { context_window: window, ..ModelBehavior::default() };
    let agent = fixture.agent(&model);
    let mut turns_over_budget = 0;
    for turn in 0..TURNS {
        let answer = send(&agent, &format!("turn {turn}")).await;
        let ended = matches!(answer.outcome, TurnOutcome::Completed | TurnOutcome::IterationLimit);
        assert!(ended && !answer.text.is_empty(), "turn {turn}: {answer:?}");
        let mut requests = model.requests.lock().unwrap();
        let last = requests.last().expect("a request");
        if last_exchange_has_result(last, BUDGET_EXCEEDED) {
            turns_over_budget += 1;
            assert_eq!(last.tool_choice, ToolChoice::None, "the turn continued");
        }
        // The requests are many and long.
        requests.clear();
    }
    let (accepted, rejected) = (&limited.accepted, &limited.rejected);
    Counts {
        accepted: accepted.load(Ordering::SeqCst),
        rejected: rejected.load(Ordering::SeqCst),
        turns_over_budget,
    }
}

/// Returns `true` if a tool result of the last exchange is `text`.
fn last_exchange_has_result(request: &ChatRequest, text: &str) -> bool {
    let last_user =
        request.messages.iter().rposition(|message| matches!(message, ChatMessage::User(_)));
    request.messages[last_user.unwrap_or(0)..]
        .iter()
        .any(|message| matches!(message, ChatMessage::Tool { content, .. } if content == text))
}

#[tokio::test]
async fn long_conversation_fits_context_window() {
    let counts = run_conversation(4, true).await;
    assert_eq!(counts.rejected, 0, "requests rejected by the provider");
    assert_eq!(
        counts.turns_over_budget,
        TURNS / 5,
        "every turn with an oversized result ends over budget"
    );
    assert!(counts.accepted < TURNS * 20, "{} requests", counts.accepted);
}

#[tokio::test]
async fn token_counter_adapts_to_the_provider() {
    let counts = run_conversation(2, true).await;
    assert!(counts.rejected <= 3, "{} of {}", counts.rejected, counts.accepted);
    assert!(counts.turns_over_budget > 0);
}

#[tokio::test]
async fn unknown_window_trims_after_overflow() {
    let counts = run_conversation(4, false).await;
    assert!(
        counts.rejected > 0 && counts.rejected < counts.accepted,
        "{} rejected",
        counts.rejected
    );
    assert_eq!(counts.turns_over_budget, 0);
}
