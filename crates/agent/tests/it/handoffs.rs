//! Handoffs: another agent answers the message of the user.

use std::{path::Path, sync::Arc};

use rockbot_agent::{
    Agent, AgentDefinition, AgentParts, Conversations, Destinations, Team, TurnEvent,
};
use rockbot_contracts::{AgentName, MessageId, user::TurnOutcome};
use rockbot_llm::{ChatMessage, ChatModel, ScriptedFailure, ScriptedTurn};
use rockbot_tools::ToolRegistry;
use serde_json::{Value, json};

use crate::{
    harness::{Behavior, EventLog, ProbeTool, RecordingModel, message, register_members, send},
    stored_harness::{CrashingLog, Storage, resume, send_as},
};

const HANDOFF: &str = "router__handoff-to";

/// A router `front` with the destinations `b` and `c`, which is also a router to `front`.
struct Routed {
    front: Agent,
    echo: Arc<ProbeTool>,
    _team: Team,
}

fn definition(head: &str) -> AgentDefinition {
    let text = format!("+++\n{head}\n+++\nBe of use.");
    AgentDefinition::parse(Path::new("x.md"), &text).unwrap()
}

impl Routed {
    fn new(front: &Arc<RecordingModel>, destination: &Arc<RecordingModel>) -> Self {
        Self::with_conversations(front, destination, None)
    }

    /// Creates a router with these conversations.
    fn with_conversations(
        front: &Arc<RecordingModel>,
        destination: &Arc<RecordingModel>,
        conversations: Option<Conversations>,
    ) -> Self {
        let registry = Arc::new(ToolRegistry::new());
        let echo = ProbeTool::new("echo", Behavior::Echo);
        registry.register(echo.as_tool()).unwrap();
        let destinations = Arc::new(Destinations::default());
        let parts = {
            let (registry, destinations) = (registry.clone(), destinations.clone());
            move |definition: AgentDefinition, model: Arc<RecordingModel>| {
                let model: Arc<dyn ChatModel> = model;
                let mut parts = AgentParts::new(definition, model, registry.clone());
                parts.destinations = Some(destinations.clone());
                parts
            }
        };
        let router = "[router]\ndestinations = ['b', 'c', 'gone']";
        let own = definition(&format!("name = 'front'\nmax_iterations = 3\n{router}"));
        let mut own = parts(own, front.clone());
        if let Some(conversations) = conversations {
            own.conversations = conversations;
        }
        let front = Agent::new(own);
        let factory = {
            let model = destination.clone();
            Arc::new(move |definition: AgentDefinition| parts(definition, model.clone()))
        };
        let team = Team::new(AgentName::new("front").unwrap(), factory);
        let team = team.with_destinations(destinations);
        let back = "name = 'c'\n[router]\ndestinations = ['front']";
        team.set_definitions(vec![definition("name = 'b'"), definition(back)]);
        register_members(&team, &registry);
        Self { front, echo, _team: team }
    }
}

fn to(agent: &str, note: &str) -> Value {
    json!({"agent": agent, "message": note})
}

fn last_user(model: &RecordingModel) -> String {
    let messages = model.last_request().messages;
    let user = messages.into_iter().rev().find_map(|message| match message {
        ChatMessage::User(text) => Some(text),
        _ => None,
    });
    user.unwrap()
}

#[tokio::test]
async fn destination_answers_and_keeps_its_conversation() {
    let front = RecordingModel::script([
        ScriptedTurn::default().call(HANDOFF, to("b", "The user is in a hurry.")),
        ScriptedTurn::text("unused"),
    ]);
    let destination = RecordingModel::script([ScriptedTurn::text("Seven.")]);
    let routed = Routed::new(&front, &destination);
    let events = EventLog::default();
    let answer = routed.front.send(message("s", "How many?"), events.sink()).await;
    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Seven."));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.turn.model_calls, usage.children.model_calls), (2, 1));
    let read = last_user(&destination);
    assert!(read.starts_with("How many?") && read.contains("The user is in a hurry."), "{read}");
    let events = events.events();
    let handed = events.iter().position(|event| *event == TurnEvent::HandedOff { to: "b".into() });
    let text = events.iter().position(|event| matches!(event, TurnEvent::TextDelta { .. }));
    assert!(handed.unwrap() < text.unwrap(), "{events:?}");

    // The next message goes to the router again, which knows what was answered.
    send(&routed.front, "And now?").await;
    let known = format!("{:?}", front.last_request().messages);
    assert!(known.contains("[b answered]: Seven."), "{known}");
    let conversation = destination.last_request().messages;
    let earlier = conversation.iter().filter(|message| matches!(message, ChatMessage::User(_)));
    assert_eq!(earlier.count(), 2, "{conversation:?}");
}

#[tokio::test]
async fn first_handoff_of_a_response_is_the_only_call() {
    let front = RecordingModel::script([
        ScriptedTurn::default()
            .call("echo", json!({}))
            .call(HANDOFF, to("b", ""))
            .call(HANDOFF, to("c", "")),
        ScriptedTurn::text("Again."),
    ]);
    let destination = RecordingModel::script([ScriptedTurn::text("Seven.")]);
    let routed = Routed::new(&front, &destination);
    assert_eq!(send(&routed.front, "go").await.text, "Seven.");
    assert_eq!((routed.echo.calls(), destination.request_count()), (0, 1));
    // The next request shows what was not done.
    send(&routed.front, "what else?").await;
    let skipped = format!("{:?}", front.last_request().messages);
    assert_eq!(
        skipped.matches("not run: the response handed the turn off").count(),
        2,
        "{skipped}"
    );
}

#[tokio::test(start_paused = true)]
async fn handoff_of_resumed_turn_without_time_left_may_have_run() {
    let storage = Storage::new();
    storage.append_late_step(&[(HANDOFF, to("b", "")), ("echo", json!({}))]).await;
    let unused = || RecordingModel::script([ScriptedTurn::text("unused")]);
    let (front, destination) = (unused(), unused());
    let routed = Routed::with_conversations(&front, &destination, Some(storage.conversations()));
    let (_, answer) = resume(&routed.front, &EventLog::default()).await.unwrap();
    assert!(answer.text.contains("time limit"), "{answer:?}");
    assert_eq!((front.request_count(), destination.request_count()), (0, 0));
    assert_eq!(storage.executed().await, ["unknown", "unknown"]);
}

#[tokio::test]
async fn failed_handoff_lets_the_router_go_on() {
    let unavailable = || ScriptedTurn::default().call(HANDOFF, to("gone", ""));
    let failing = || ScriptedTurn::default().call(HANDOFF, to("b", ""));
    let front = RecordingModel::script([unavailable(), failing(), ScriptedTurn::text("Done.")]);
    let destination = RecordingModel::script([ScriptedTurn::failing(ScriptedFailure::Rejected)]);
    let routed = Routed::new(&front, &destination);
    assert_eq!(send(&routed.front, "go").await.text, "Done.");
    let results = front.tool_results();
    assert!(results[0].contains("agent gone is not available"), "{results:?}");
    assert!(results[1].contains("agent b did not answer"), "{results:?}");
}

#[tokio::test]
async fn destination_cannot_hand_back() {
    let front = RecordingModel::script([ScriptedTurn::default().call(HANDOFF, to("c", ""))]);
    let destination = RecordingModel::script([
        ScriptedTurn::default().call(HANDOFF, to("front", "")),
        ScriptedTurn::text("I answer."),
    ]);
    let routed = Routed::new(&front, &destination);
    assert_eq!(send(&routed.front, "go").await.text, "I answer.");
    let results = destination.tool_results();
    assert!(results[0].contains("answer yourself"), "{results:?}");
}

#[tokio::test]
async fn agent_without_destinations_has_no_handoff() {
    let front = RecordingModel::script([ScriptedTurn::default().call(HANDOFF, to("b", ""))]);
    let destination = RecordingModel::script([ScriptedTurn::text("Seven.")]);
    let routed = Routed::new(&front, &destination);
    send(&routed.front, "go").await;
    let offered =
        |model: &RecordingModel| model.last_request().tools.iter().any(|tool| tool.name == HANDOFF);
    assert!(offered(&front) && !offered(&destination));
}

#[tokio::test(start_paused = true)]
async fn calls_beside_a_handoff_do_not_run_when_the_turn_continues() {
    let script = || {
        RecordingModel::script([ScriptedTurn::default()
            .call("echo", json!({}))
            .call(HANDOFF, to("b", ""))
            .call(HANDOFF, to("c", ""))])
    };
    let answers = || RecordingModel::script([ScriptedTurn::text("Seven.")]);
    let storage = Storage::new();
    // Message, response, and the result of the handoff.
    let log = CrashingLog::new(&storage, 3);
    let conversations = Some(storage.conversations_on(log.clone()));
    let routed = Routed::with_conversations(&script(), &answers(), conversations);
    let running = tokio::spawn({
        let front = routed.front.clone();
        async move { drop(send_as(&front, &MessageId::generate(), "go").await) }
    });
    log.wait_for_crash().await;
    running.abort();
    drop(routed);
    let destination = answers();
    let conversations = Some(storage.conversations());
    let routed = Routed::with_conversations(&script(), &destination, conversations);
    let (_, answer) = resume(&routed.front, &EventLog::default()).await.unwrap();
    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Seven."));
    assert_eq!((routed.echo.calls(), destination.request_count()), (0, 1));
}
