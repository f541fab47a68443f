//! Agents as tools of callers without a turn, over the bus.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rockbot_agent::{Agent, AgentClient, AgentInbox, RemoteAgent, serve};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{AgentName, Executed, InstanceId, SessionId, ToolCallId, ToolErrorCode};
use rockbot_llm::{FinishReason, ScriptedTurn};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult, ToolUpdate};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, ProbeTool, RecordingModel, calls, text_events,
};

fn name(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

struct Fixture {
    tool: RemoteAgent,
    _inbox: AgentInbox,
}

impl Fixture {
    async fn new(agent: Agent) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let inbox = serve(agent, bus.clone(), 16).await.unwrap();
        let client = AgentClient::connect(bus, &InstanceId::generate()).await.unwrap();
        let wait = Duration::from_secs(5);
        let tool = RemoteAgent::describe(Arc::new(client), name("tester"), wait).await;
        Self { tool, _inbox: inbox }
    }

    async fn call(
        &self,
        context: &ToolContext,
        arguments: Value,
    ) -> Result<ToolResult, ToolFailure> {
        self.tool.call(arguments, context).await
    }
}

/// Returns the context of a call in a session of the caller.
fn context(session: &str, call: &str) -> ToolContext {
    let session = SessionId::new(session).unwrap();
    let mut context = ToolContext::new("agent__tester", session, name("gateway"));
    context.tool_call_id = ToolCallId::new(call).unwrap();
    context
}

fn ask(text: &str) -> Value {
    json!({"message": text})
}

#[tokio::test(start_paused = true)]
async fn repeated_call_is_one_turn() {
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let fixture = Fixture::new(AgentFixture::new().agent(&model)).await;
    assert_eq!(fixture.tool.registration().name, "agent__tester");
    for _ in 0..3 {
        let answer = fixture.call(&context("a", "1"), ask("go")).await.unwrap();
        assert!(answer.to_text().starts_with("Hello.\n[to continue this conversation"));
        assert_eq!(answer.details, Some(json!({"conversation": "1"})));
    }
    assert_eq!(model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn conversation_is_continued_by_its_session_only() {
    let turns = ["First.", "Second.", "Third."].map(ScriptedTurn::text);
    let model = RecordingModel::script(turns);
    let fixture = Fixture::new(AgentFixture::new().agent(&model)).await;
    fixture.call(&context("a", "1"), ask("one")).await.unwrap();
    let messages = model.last_request().messages.len();
    let again = json!({"message": "two", "conversation": "1"});
    fixture.call(&context("a", "2"), again.clone()).await.unwrap();
    assert_eq!(model.last_request().messages.len(), messages + 2, "it knows the first turn");
    fixture.call(&context("b", "3"), again).await.unwrap();
    assert_eq!(model.last_request().messages.len(), messages, "another conversation");
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_cancels_the_turn_and_progress_is_reported() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&[("a", "stuck", "")], FinishReason::ToolCalls)),
        Answer::Events(text_events("late")),
    ]));
    let fixture = Fixture::new(AgentFixture::new().with(&stuck).agent(&model)).await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = lines.clone();
    let mut context = context("a", "1");
    context.updates = Some(Arc::new(move |update| {
        if let ToolUpdate::Progress(line) = update {
            seen.lock().unwrap().push(line);
        }
    }));
    let cancel = async {
        stuck.wait_for_call().await;
        context.cancellation.cancel();
    };
    let (outcome, ()) = tokio::join!(fixture.call(&context, ask("go")), cancel);
    assert_eq!(outcome.unwrap_err().code(), ToolErrorCode::Cancelled);
    assert!(stuck.token().is_cancelled());
    assert_eq!(lines.lock().unwrap()[0], "tester calls stuck");
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_the_turn() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let model = RecordingModel::new(CannedModel::new([Answer::Events(calls(
        &[("a", "stuck", "")],
        FinishReason::ToolCalls,
    ))]));
    let fixture = Fixture::new(AgentFixture::new().with(&stuck).agent(&model)).await;
    let mut context = context("a", "1");
    context.deadline = Instant::now() + Duration::from_secs(1);
    let failure = fixture.call(&context, ask("go")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Yes));
    assert!(failure.to_string().contains("\"conversation\": \"1\""), "{failure}");
    assert!(stuck.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn missing_agent_did_not_run() {
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let client = AgentClient::connect(bus, &InstanceId::generate()).await.unwrap();
    let wait = Duration::from_secs(1);
    let tool = RemoteAgent::describe(Arc::new(client), name("missing"), wait).await;
    let failure = tool.call(ask("go"), &context("a", "1")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
}
