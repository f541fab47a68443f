//! Conversations that are much longer than what the model can read.

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

/// Calls tools for as long as it likes and may, and counts its own way like a provider does.
struct LimitedModel {
    /// A token has so many characters for it.
    chars_per_token: usize,
    accepted: AtomicUsize,
    refused: AtomicUsize,
    /// Questions of the running turn.
    asked: Mutex<(String, usize)>,
}

impl LimitedModel {
    fn tokens(&self, request: &ChatRequest) -> usize {
        let message = |message: &ChatMessage| match message {
            ChatMessage::System(text) | ChatMessage::User(text) => text.chars().count(),
            ChatMessage::Tool { content, .. } => content.chars().count(),
            ChatMessage::Assistant { text, tool_calls } => {
                let call = |call: &rockbot_llm::ToolCallRequest| {
                    call.id.len() + call.name.len() + call.arguments.len()
                };
                text.chars().count() + tool_calls.iter().map(call).sum::<usize>()
            }
        };
        let words: usize = request.messages.iter().map(message).sum();
        let tool = |tool: &rockbot_llm::ToolDefinition| {
            tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
        };
        let tools: usize = request.tools.iter().map(tool).sum();
        (words + tools) / self.chars_per_token + 4 * request.messages.len()
    }

    fn answer(&self, request: &ChatRequest) -> Result<Vec<ChatEvent>, ChatError> {
        let tokens = self.tokens(request);
        if tokens > WINDOW {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let message = format!("{tokens} tokens are over the context length of {WINDOW}");
            return Err(ChatError::ContextOverflow { message });
        }
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let mut users = request.messages.iter().filter_map(|message| match message {
            ChatMessage::User(text) => Some(text.as_str()),
            _ => None,
        });
        let turn = users.next_back().expect("somebody asks").lines().next().unwrap_or_default();
        let asked = {
            let mut asked = self.asked.lock().unwrap();
            if asked.0 != turn {
                *asked = (turn.to_owned(), 0);
            }
            asked.1 += 1;
            asked.1
        };
        let number: usize = turn.trim_start_matches("turn ").parse().expect("a turn");
        let mut events = match number % 5 {
            _ if request.tool_choice == ToolChoice::None => {
                text_events("That is all I could read.")
            }
            0 => text_events("Nothing to do."),
            // Again and again, until it may not any more.
            1 => calls(&[("a", "short", "")], FinishReason::ToolCalls),
            2 if asked < 3 => calls(&[("a", "huge", "")], FinishReason::ToolCalls),
            // Each fits, and not all of them.
            3 if asked == 1 => {
                let long = ["a", "b", "c", "d", "e"].map(|id| (id, "long", ""));
                calls(&long, FinishReason::ToolCalls)
            }
            _ => text_events(&"A long story. ".repeat(200)),
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

/// What happened in a conversation of 300 turns, each of which ended with an answer.
struct Summary {
    accepted: usize,
    refused: usize,
    over_budget: usize,
}

async fn run_conversation(chars_per_token: usize, is_window_known: bool) -> Summary {
    let limited = Arc::new(LimitedModel {
        chars_per_token,
        accepted: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        asked: Mutex::default(),
    });
    let witness = RecordingModel::new(Model(limited.clone()));
    let mut fixture = AgentFixture::new()
        .with(&ProbeTool::new("short", Behavior::LongText(2_000)))
        .with(&ProbeTool::new("long", Behavior::LongText(12_000)))
        .with(&ProbeTool::new("huge", Behavior::LongText(60_000)));
    let window = is_window_known.then_some(u32::try_from(WINDOW).unwrap());
    fixture.behavior = ModelBehavior { context_window: window, ..ModelBehavior::default() };
    let agent = fixture.agent(&witness);
    let mut over_budget = 0;
    for turn in 0..TURNS {
        let answer = send(&agent, &format!("turn {turn}")).await;
        let ended = matches!(answer.outcome, TurnOutcome::Completed | TurnOutcome::IterationLimit);
        assert!(ended && !answer.text.is_empty(), "turn {turn}: {answer:?}");
        let mut requests = witness.requests.lock().unwrap();
        let last = requests.last().expect("asked");
        if witness_read(last, BUDGET_EXCEEDED) {
            over_budget += 1;
            assert_eq!(last.tool_choice, ToolChoice::None, "the turn went on");
        }
        // They are many and long.
        requests.clear();
    }
    let (accepted, refused) = (&limited.accepted, &limited.refused);
    Summary {
        accepted: accepted.load(Ordering::SeqCst),
        refused: refused.load(Ordering::SeqCst),
        over_budget,
    }
}

/// Whether the last result text_events that.
fn witness_read(request: &ChatRequest, words: &str) -> bool {
    let said = request.messages.iter().rposition(|message| matches!(message, ChatMessage::User(_)));
    request.messages[said.unwrap_or(0)..]
        .iter()
        .any(|message| matches!(message, ChatMessage::Tool { content, .. } if content == words))
}

#[tokio::test]
async fn a_conversation_of_300_turns_never_exceeds_the_window_and_every_turn_is_answered() {
    let summary = run_conversation(4, true).await;
    assert_eq!(summary.refused, 0, "the provider never saw too much");
    assert_eq!(summary.over_budget, TURNS / 5, "what does not fit is refused, and ends its turn");
    assert!(summary.accepted < TURNS * 20, "{} questions", summary.accepted);
}

#[tokio::test]
async fn a_provider_that_counts_more_tokens_is_believed_before_it_refuses_again() {
    let summary = run_conversation(2, true).await;
    assert!(summary.refused <= 3, "{} of {}", summary.refused, summary.accepted);
    assert!(summary.over_budget > 0);
}

#[tokio::test]
async fn where_the_window_is_not_known_what_is_too_much_is_trimmed_and_every_turn_is_answered() {
    let summary = run_conversation(4, false).await;
    assert!(
        summary.refused > 0 && summary.refused < summary.accepted,
        "{} refused",
        summary.refused
    );
    assert_eq!(summary.over_budget, 0);
}
