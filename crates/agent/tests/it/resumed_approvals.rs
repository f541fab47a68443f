//! Approval requests of turns whose process is lost.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentClient, AgentInbox, Approvals, SendError, Sharing, TurnAnswer, TurnEvent, serve,
    serve_shared,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{
    ApprovalAnswer, ApprovalDecision, InputAction, InputAnswer, InputId, InstanceId, MessageId,
    ReplyBody,
};
use rockbot_llm::ScriptedTurn;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    harness::{AgentFixture, ApprovalRequest, EventLog, RecordingModel, message, settle},
    replica_harness::tester,
    stored_harness::{JournaledTool, Storage, resume, send_to, session},
};

/// A turn that waits for the approval of a call.
struct Waiting {
    storage: Storage,
    tool: Arc<JournaledTool>,
    message: MessageId,
}

impl Waiting {
    fn new() -> Self {
        let (tool, message) = (JournaledTool::remote("first"), MessageId::generate());
        Self { storage: Storage::new(), tool, message }
    }

    /// Starts a process.
    fn process(&self) -> (Agent, Arc<Approvals>) {
        self.process_with(&json!([]))
    }

    fn process_with(&self, rules: &Value) -> (Agent, Arc<Approvals>) {
        let section = serde_json::from_value(json!({"policy": "ask", "rules": rules})).unwrap();
        let approvals = Approvals::new(section).unwrap();
        let fixture = AgentFixture { approvals: Some(approvals.clone()), ..AgentFixture::new() };
        self.tool.register(&fixture.registry);
        let model = RecordingModel::script([
            ScriptedTurn::default().call("first", json!({})),
            ScriptedTurn::text("Done."),
        ]);
        (self.storage.agent(fixture, &model), approvals)
    }

    /// Runs the turn in a process that is lost while the request is open. Returns the request.
    async fn lose_process(&self) -> ApprovalRequest {
        let (agent, _approvals) = self.process();
        let (turn, events) = spawn(&agent, &self.message, "go");
        settle().await;
        turn.abort();
        assert_eq!(self.storage.kinds().await, ["message", "model", "question"]);
        events.approval_requests().remove(0)
    }
}

fn spawn(agent: &Agent, id: &MessageId, text: &'static str) -> (JoinHandle<TurnAnswer>, EventLog) {
    let (agent, id, events) = (agent.clone(), id.clone(), EventLog::default());
    let sink = events.sink();
    (tokio::spawn(async move { send_to(&agent, &id, text, sink).await }), events)
}

#[tokio::test(start_paused = true)]
async fn decision_before_takeover_counts() {
    let waiting = Waiting::new();
    let request = waiting.lose_process().await;
    let (agent, approvals) = waiting.process();
    let decision = request.answer("s", ApprovalDecision::Allow);
    assert!(!approvals.answer(&decision), "the request is not open here");
    let events = EventLog::default();
    let (_, answer) = resume(&agent, &events).await.unwrap();
    assert_eq!((answer.text.as_str(), waiting.tool.runs()), ("Done.", 1));
    assert!(events.approval_requests().is_empty(), "the user gets no second request");
}

#[tokio::test(start_paused = true)]
async fn call_that_needs_no_approval_now_is_recorded_as_allowed() {
    let waiting = Waiting::new();
    waiting.lose_process().await;
    let (agent, _approvals) = waiting.process_with(&json!([{"tool": "first", "policy": "allow"}]));
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((answer.text.as_str(), waiting.tool.runs()), ("Done.", 1));
    let kinds = waiting.storage.kinds().await;
    // Without it, a third process would take the call for one that did not run.
    let position = |kind: &str| kinds.iter().position(|one| one == kind);
    assert!(position("decision") < position("result"), "{kinds:?}");
    assert!(position("decision").is_some(), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn expired_or_foreign_decision_before_takeover_is_ignored() {
    let waiting = Waiting::new();
    let request = waiting.lose_process().await;
    let (agent, approvals) = waiting.process();
    let decision = request.answer("s", ApprovalDecision::Allow);
    approvals.answer(&decision);
    tokio::time::advance(Duration::from_secs(121)).await;
    approvals.answer(&request.answer("another", ApprovalDecision::Allow));
    let other_call = ApprovalAnswer { call_hash: "0".repeat(64), ..decision };
    approvals.answer(&other_call);
    let events = EventLog::default();
    let (_, answer) = resume(&agent, &events).await.unwrap();
    assert_eq!(events.approval_requests().len(), 1);
    assert_eq!((answer.text.as_str(), waiting.tool.runs()), ("Done.", 0));
}

#[tokio::test(start_paused = true)]
async fn redelivered_message_gets_open_request_of_resumed_turn() {
    let waiting = Waiting::new();
    let before = waiting.lose_process().await;
    let (agent, approvals) = waiting.process();
    // A later message arrives before the redelivery of the one that started the turn.
    let (later, later_events) = spawn(&agent, &MessageId::generate(), "and then?");
    settle().await;
    assert!(later_events.approval_requests().is_empty());
    tokio::time::advance(Duration::from_secs(20)).await;
    let (first, events) = spawn(&agent, &waiting.message, "go");
    settle().await;
    let seen = events.events();
    assert!(matches!(seen[0], TurnEvent::Resumed { attempt: 2, .. }), "{seen:?}");
    let TurnEvent::ApprovalAsked { approval_id, expiry, .. } = &seen[1] else { panic!("{seen:?}") };
    assert_eq!(*approval_id, before.id);
    assert!((99..=100).contains(&expiry.as_secs()), "{expiry:?}");
    assert!(approvals.answer(&before.answer("s", ApprovalDecision::Allow)));
    assert_eq!(first.await.unwrap().text, "Done.");
    assert_eq!((later.await.unwrap().text.as_str(), waiting.tool.runs()), ("Done.", 1));
}

#[tokio::test(start_paused = true)]
async fn decision_that_only_another_process_receives_counts() {
    let waiting = Waiting::new();
    let (agent, _approvals) = waiting.process();
    let here = serve(agent.clone(), Arc::new(MemoryBus::new()), 1).await.unwrap();
    let (turn, events) = spawn(&agent, &waiting.message, "go");
    settle().await;
    let request = events.approval_requests().remove(0);
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let (other, _approvals) = waiting.process();
    let there = serve(other, bus.clone(), 1).await.unwrap();
    let proxy = InstanceId::new("proxy").unwrap();
    let client = AgentClient::connect(bus, &proxy).await.unwrap();
    for decision in [ApprovalDecision::Allow, ApprovalDecision::Deny] {
        // The first one counts.
        client.answer_approval(&tester(), &request.answer("s", decision)).await.unwrap();
    }
    let answer = turn.await.unwrap();
    assert_eq!((answer.text.as_str(), waiting.tool.runs()), ("Done.", 1));
    assert_eq!(events.approval_requests().len(), 1);
    drop((here, there));
}

#[tokio::test(start_paused = true)]
async fn recorded_denial_counts_before_a_later_direct_allowance() {
    let waiting = Waiting::new();
    let (agent, approvals) = waiting.process();
    let here = serve(agent.clone(), Arc::new(MemoryBus::new()), 1).await.unwrap();
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let (other, _approvals) = waiting.process();
    let there = serve(other, bus.clone(), 1).await.unwrap();
    let proxy = InstanceId::new("proxy").unwrap();
    let client = AgentClient::connect(bus, &proxy).await.unwrap();
    let (turn, events) = spawn(&agent, &waiting.message, "go");
    settle().await;
    let request = events.approval_requests().remove(0);
    let denial = request.answer("s", ApprovalDecision::Deny);
    client.answer_approval(&tester(), &denial).await.unwrap();
    settle().await;
    // The other process has recorded the denial, and this one has not read it yet.
    assert!(approvals.answer(&request.answer("s", ApprovalDecision::Allow)));
    let answer = turn.await.unwrap();
    assert_eq!((answer.text.as_str(), waiting.tool.runs()), ("Done.", 0));
    drop((here, there));
}

/// Starts a process of the agent on a bus.
async fn start(waiting: &Waiting, bus: &Arc<dyn Bus>, instance: &str) -> AgentInbox {
    let (agent, _approvals) = waiting.process();
    let instance = InstanceId::new(instance).unwrap();
    let sharing = Sharing::new(waiting.storage.stores.store.clone(), instance);
    serve_shared(agent, bus.clone(), 4, sharing).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn input_response_without_a_process_is_refused() {
    let (waiting, bus) = (Waiting::new(), Arc::new(MemoryBus::new()) as Arc<dyn Bus>);
    let proxy = InstanceId::new("proxy").unwrap();
    let client = AgentClient::connect(bus.clone(), &proxy).await.unwrap();
    let (input_id, response) = (InputId::generate(), InputAction::Decline.into());
    let answer = InputAnswer { session_id: session(), input_id, response };
    let only = start(&waiting, &bus, "one").await;
    client.answer_input(&tester(), &answer).await.unwrap();
    drop(only);
    settle().await;
    let refused = client.answer_input(&tester(), &answer).await;
    assert!(matches!(refused, Err(SendError::AgentUnavailable { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn decision_given_without_a_process_counts() {
    for decision in [ApprovalDecision::Allow, ApprovalDecision::Deny] {
        let (waiting, bus) = (Waiting::new(), Arc::new(MemoryBus::new()) as Arc<dyn Bus>);
        let proxy = InstanceId::new("proxy").unwrap();
        let client = AgentClient::connect(bus.clone(), &proxy).await.unwrap();
        let only = start(&waiting, &bus, "one").await;
        let mut replies = client.send(&tester(), &message("s", "go")).await.unwrap();
        let (mut asked, mut text) = (Vec::new(), None);
        while asked.is_empty() {
            if let ReplyBody::ApprovalAsked { approval_id, call_hash, .. } =
                replies.next().await.unwrap().unwrap().body
            {
                asked.push((approval_id, call_hash));
            }
        }
        drop(only);
        let (approval_id, call_hash) = asked[0].clone();
        let session_id = session();
        let given = ApprovalAnswer { session_id, approval_id, call_hash, decision, reason: None };
        client.answer_approval(&tester(), &given).await.unwrap();

        let _next = start(&waiting, &bus, "two").await;
        while text.is_none() {
            match replies.next().await.unwrap().unwrap().body {
                ReplyBody::ApprovalAsked { approval_id, call_hash, .. } => {
                    asked.push((approval_id, call_hash));
                }
                ReplyBody::Answer { text: answer, .. } => text = Some(answer),
                _ => {}
            }
        }
        let runs = usize::from(decision == ApprovalDecision::Allow);
        assert_eq!((text.as_deref(), waiting.tool.runs()), (Some("Done."), runs));
        assert_eq!(asked.len(), 1, "the request is shown once");
        assert_eq!(
            waiting.storage.kinds().await.iter().filter(|kind| *kind == "decision").count(),
            1
        );
    }
}
