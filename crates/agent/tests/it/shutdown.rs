//! Orderly stop of an agent whose conversations outlive it.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{AgentDefinition, AgentParts, Team, TurnEnd};
use rockbot_contracts::{AgentName, MessageId};
use rockbot_llm::{ChatModel, ScriptedTurn};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    harness::{
        AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, register_members, settle,
    },
    stored_harness::{JournaledTool, Storage, resume, send_as},
};

fn one_call() -> Arc<RecordingModel> {
    RecordingModel::script([
        ScriptedTurn::default().call("work", json!({})),
        ScriptedTurn::text("Done."),
    ])
}

#[tokio::test(start_paused = true)]
async fn turn_is_released_after_its_step_and_continued() {
    let (storage, id, gate) = (Storage::new(), MessageId::generate(), Arc::new(Semaphore::new(0)));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let model = one_call();
    let agent = storage.agent(AgentFixture::new().with(&work), &model);
    let running = tokio::spawn({
        let (agent, id) = (agent.clone(), id.clone());
        async move { send_as(&agent, &id, "go").await }
    });
    work.wait_for_call().await;
    let closing = tokio::spawn({
        let agent = agent.clone();
        async move { agent.shut_down(Duration::from_secs(10)).await }
    });
    settle().await;
    assert_eq!(send_as(&agent, &MessageId::generate(), "more").await.ended, TurnEnd::Released);
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().ended, TurnEnd::Released);
    assert!(closing.await.unwrap(), "within the grace period");
    assert_eq!(model.request_count(), 1);
    assert_eq!(storage.kinds().await, ["message", "model", "result", "put_down"]);

    let next = storage.agent(AgentFixture::new().with(&work), &one_call());
    let (_, answer) = resume(&next, &EventLog::default()).await.unwrap();
    assert_eq!((answer.text.as_str(), work.calls()), ("Done.", 1));
}

#[tokio::test(start_paused = true)]
async fn call_beyond_the_grace_period_is_left_running() {
    let storage = Storage::new();
    let work = ProbeTool::new("work", Behavior::Hang);
    let agent = storage.agent(AgentFixture::new().with(&work), &one_call());
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { send_as(&agent, &MessageId::generate(), "go").await }
    });
    work.wait_for_call().await;
    assert!(!agent.shut_down(Duration::from_secs(10)).await);
    assert_eq!(running.await.unwrap().ended, TurnEnd::Released);
    let context = work.contexts.lock().unwrap()[0].clone();
    assert!(context.handover.is_cancelled() && !context.cancellation.is_cancelled());

    let echo = ProbeTool::new("work", Behavior::Echo);
    let next = storage.agent(AgentFixture::new().with(&echo), &one_call());
    let (_, answer) = resume(&next, &EventLog::default()).await.unwrap();
    assert_eq!((answer.text.as_str(), echo.ids()), ("Done.", work.ids()));
}

#[tokio::test(start_paused = true)]
async fn repeated_orderly_stops_do_not_fail_a_turn() {
    let storage = Storage::new();
    let work = ProbeTool::new("work", Behavior::Hang);
    let id = MessageId::generate();
    for _ in 0..5 {
        let agent = storage.agent(AgentFixture::new().with(&work), &one_call());
        let running = tokio::spawn({
            let (agent, id) = (agent.clone(), id.clone());
            async move { send_as(&agent, &id, "go").await }
        });
        work.wait_for_call().await;
        agent.shut_down(Duration::ZERO).await;
        assert_eq!(running.await.unwrap().ended, TurnEnd::Released);
    }
    let echo = ProbeTool::new("work", Behavior::Echo);
    let next = storage.agent(AgentFixture::new().with(&echo), &one_call());
    assert_eq!(send_as(&next, &id, "go").await.text, "Done.");
}

#[tokio::test(start_paused = true)]
async fn turn_of_a_sub_agent_is_continued_with_its_caller() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    let (quick, slow) = (JournaledTool::remote("quick"), ProbeTool::new("slow", Behavior::Hang));
    let echo = ProbeTool::new("slow", Behavior::Echo);
    let start = |slow: &Arc<ProbeTool>| {
        let fixture = AgentFixture::new().with(slow);
        quick.register(&fixture.registry);
        let registry = fixture.registry.clone();
        let factory = {
            let registry = registry.clone();
            let stores = storage.stores.clone();
            Arc::new(move |definition: AgentDefinition| {
                let model: Arc<dyn ChatModel> = RecordingModel::script([
                    ScriptedTurn::default().call("quick", json!({})),
                    ScriptedTurn::default().call("slow", json!({})),
                    ScriptedTurn::text("Inner done."),
                ]);
                let conversations = rockbot_agent::Conversations::new(
                    stores.log.clone(),
                    stores.store.clone(),
                    definition.name.clone(),
                    rockbot_agent::ConversationOptions::default(),
                );
                let parts = AgentParts::new(definition, model, registry.clone());
                AgentParts { conversations, ..parts }
            })
        };
        let team = Team::new(AgentName::new("tester").unwrap(), factory);
        team.set_definitions(vec![AgentDefinition::new(AgentName::new("b").unwrap(), "Be brief.")]);
        register_members(&team, &registry);
        let model = RecordingModel::script([
            ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
            ScriptedTurn::text("Outer done."),
        ]);
        (storage.agent(fixture, &model), team, model)
    };
    let (agent, team, _) = start(&slow);
    let running = tokio::spawn({
        let (agent, id) = (agent.clone(), id.clone());
        async move { send_as(&agent, &id, "go").await }
    });
    slow.wait_for_call().await;
    assert!(!agent.shut_down(Duration::from_secs(1)).await);
    assert_eq!(running.await.unwrap().ended, TurnEnd::Released);
    team.shut_down(Duration::from_secs(1)).await;
    let context = slow.contexts.lock().unwrap()[0].clone();
    assert!(!context.cancellation.is_cancelled());
    drop((agent, team));

    let (agent, _team, model) = start(&echo);
    let answer = send_as(&agent, &id, "go").await;
    assert_eq!(answer.text, "Outer done.");
    assert_eq!(model.tool_results(), ["Inner done."]);
    assert_eq!((quick.runs(), echo.ids()), (1, slow.ids()));
}
