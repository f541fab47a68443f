//! Several processes of one agent on the same conversations.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{ConversationError, TurnEnd, TurnEvent};
use rockbot_contracts::{
    ApprovalDecision, MessageId, SessionId, UserFeedback, conversation::FeedbackRating,
    user::TurnOutcome,
};
use rockbot_llm::ScriptedTurn;
use rockbot_tools::{ApprovalSection, EntryPoint};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    harness::{
        AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, message,
        settle, text_events,
    },
    stored_harness::{
        CrashingLog, Fault, JournaledTool, Storage, origin, resume, send_as, send_to, session,
    },
};

fn positive_feedback(message_id: MessageId) -> UserFeedback {
    let (session_id, rating) = (session(), FeedbackRating::Positive);
    UserFeedback { session_id, message_id, rating, comment: String::new() }
}

fn one_call() -> Arc<RecordingModel> {
    RecordingModel::script([
        ScriptedTurn::default().call("work", json!({})),
        ScriptedTurn::text("Done."),
    ])
}

#[tokio::test]
async fn processes_take_turns_in_one_conversation() {
    let storage = Storage::new();
    let model = RecordingModel::script([ScriptedTurn::text("Noted.")]);
    let (one, two) =
        (storage.agent(AgentFixture::new(), &model), storage.agent(AgentFixture::new(), &model));
    for (index, agent) in [&one, &two, &one, &one, &two].into_iter().enumerate() {
        let answer = send_as(agent, &MessageId::generate(), &format!("message {index}")).await;
        assert_eq!(answer.text, "Noted.");
        assert_eq!(model.last_request().messages.len(), 2 + 2 * index);
        assert_eq!(answer.usage.unwrap().session.model_calls, index as u64 + 1);
    }
    let summary = two.conversations().summary(&session()).await.unwrap().unwrap();
    assert_eq!((summary.turns, summary.title.as_str()), (5, "message 0"));
}

#[tokio::test]
async fn answered_id_gets_the_recorded_answer_in_any_process() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    let model = RecordingModel::script([ScriptedTurn::text("Noted.")]);
    let (one, two) =
        (storage.agent(AgentFixture::new(), &model), storage.agent(AgentFixture::new(), &model));
    let answer = send_as(&one, &id, "go").await;
    assert_eq!(send_as(&one, &id, "go").await, answer);
    assert_eq!(send_as(&two, &id, "go").await, answer);
    assert_eq!(model.request_count(), 1);
    let other = send_as(&two, &id, "something else").await;
    assert_eq!(other.outcome, TurnOutcome::ModelFailed);
    assert!(other.text.contains("another text"), "{}", other.text);
    assert_eq!((model.request_count(), storage.len().await), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn fenced_process_stops_without_an_answer() {
    let (storage, id, gate) = (Storage::new(), MessageId::generate(), Arc::new(Semaphore::new(0)));
    let stalled = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let first_model = one_call();
    let first = storage.agent(AgentFixture::new().with(&stalled), &first_model);
    let running = tokio::spawn({
        let (first, id) = (first.clone(), id.clone());
        async move { send_as(&first, &id, "go").await }
    });
    stalled.wait_for_call().await;

    // The first process does not know that another one continued its turn.
    let echo = ProbeTool::new("work", Behavior::Echo);
    let second = storage.agent(AgentFixture::new().with(&echo), &one_call());
    let (_, answer) = resume(&second, &EventLog::default()).await.unwrap();
    assert_eq!((answer.text.as_str(), echo.ids()), ("Done.", stalled.ids()));
    let recorded = storage.len().await;

    gate.add_permits(1);
    let fenced = running.await.unwrap();
    assert_eq!(fenced.ended, TurnEnd::Fenced);
    assert!(!fenced.ended.is_answer());
    assert_eq!((first_model.request_count(), storage.len().await), (1, recorded));
    // It can take the next message.
    assert_eq!(send_as(&first, &id, "go").await.text, "Done.");
    gate.add_permits(1);
    assert_eq!(send_as(&first, &MessageId::generate(), "more").await.text, "Done.");
}

#[tokio::test(start_paused = true)]
async fn fenced_process_does_not_cancel_calls_of_the_other() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let (quick, slow) = (
        ProbeTool::new("quick", Behavior::Gated(gate.clone())),
        ProbeTool::new("slow", Behavior::Hang),
    );
    let script = || {
        RecordingModel::script([
            ScriptedTurn::default().call("quick", json!({})).call("slow", json!({})),
            ScriptedTurn::text("Done."),
        ])
    };
    let first = storage.agent(AgentFixture::new().with(&quick).with(&slow), &script());
    let running = tokio::spawn({
        let first = first.clone();
        async move { send_as(&first, &MessageId::generate(), "go").await }
    });
    quick.wait_for_call().await;
    slow.wait_for_call().await;
    let (echo, other) =
        (ProbeTool::new("quick", Behavior::Echo), ProbeTool::new("slow", Behavior::Echo));
    let second = storage.agent(AgentFixture::new().with(&echo).with(&other), &script());
    resume(&second, &EventLog::default()).await.unwrap();
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().ended, TurnEnd::Fenced);
    let context = slow.contexts.lock().unwrap()[0].clone();
    assert!(context.handover.is_cancelled() && !context.cancellation.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn cancel_in_fenced_process_does_not_cancel_calls_of_the_other() {
    let (storage, hanging) = (Storage::new(), ProbeTool::new("work", Behavior::Hang));
    let first = storage.agent(AgentFixture::new().with(&hanging), &one_call());
    let running = tokio::spawn({
        let first = first.clone();
        async move { send_as(&first, &MessageId::generate(), "go").await }
    });
    hanging.wait_for_call().await;
    let echo = ProbeTool::new("work", Behavior::Echo);
    let second = storage.agent(AgentFixture::new().with(&echo), &one_call());
    resume(&second, &EventLog::default()).await.unwrap();

    let cancelling = first.run_turn(
        origin(&MessageId::generate()),
        crate::harness::cancel("s"),
        EventLog::default().sink(),
    );
    assert_eq!(cancelling.await.ended, TurnEnd::Fenced);
    assert_eq!(running.await.unwrap().ended, TurnEnd::Fenced);
    let context = hanging.contexts.lock().unwrap()[0].clone();
    assert!(context.handover.is_cancelled() && !context.cancellation.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn agent_that_is_dropped_does_not_cancel_its_calls() {
    let (storage, hanging) = (Storage::new(), ProbeTool::new("work", Behavior::Hang));
    let agent = storage.agent(AgentFixture::new().with(&hanging), &one_call());
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    hanging.wait_for_call().await;
    running.abort();
    settle().await;
    drop(agent);
    settle().await;
    let context = hanging.contexts.lock().unwrap()[0].clone();
    assert!(context.handover.is_cancelled() && !context.cancellation.is_cancelled());
}

/// The new conversation has as many entries as the one that the first process continues.
#[tokio::test(start_paused = true)]
async fn process_does_not_continue_a_deleted_conversation_in_a_new_one() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let (stalled, hanging) = (
        ProbeTool::new("work", Behavior::Gated(gate.clone())),
        ProbeTool::new("work", Behavior::Hang),
    );
    let first = storage.agent(AgentFixture::new().with(&stalled), &one_call());
    let running = tokio::spawn({
        let first = first.clone();
        async move { send_as(&first, &MessageId::generate(), "go").await }
    });
    stalled.wait_for_call().await;
    assert!(storage.conversations().delete(&session()).await.unwrap());
    let second = storage.agent(AgentFixture::new().with(&hanging), &one_call());
    let _other = tokio::spawn({
        let second = second.clone();
        async move { send_as(&second, &MessageId::generate(), "something else").await }
    });
    hanging.wait_for_call().await;
    assert_eq!(storage.kinds().await, ["message", "model"]);

    gate.add_permits(1);
    let answer = running.await.unwrap();
    assert!(answer.text.contains("was deleted"), "{}", answer.text);
    assert_eq!(storage.kinds().await, ["message", "model"]);
}

#[tokio::test(start_paused = true)]
async fn feedback_does_not_fence_a_running_turn() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let first = MessageId::generate();
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(text_events("Hello.")),
        Answer::Gated(gate.clone(), "Bye."),
    ]));
    let agent = storage.agent(AgentFixture::new(), &model);
    send_as(&agent, &first, "hi").await;
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { send_as(&agent, &MessageId::generate(), "bye").await }
    });
    settle().await;
    let feedback = UserFeedback {
        session_id: session(),
        message_id: first,
        rating: FeedbackRating::Negative,
        comment: "too short".to_owned(),
    };
    storage.conversations().record_feedback(&feedback).await.unwrap();
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().text, "Bye.");
    assert_eq!(storage.kinds().await, ["message", "answer", "message", "feedback", "answer"]);
}

#[tokio::test]
async fn feedback_on_an_unknown_message_or_conversation_is_rejected() {
    let storage = Storage::new();
    let agent =
        storage.agent(AgentFixture::new(), &RecordingModel::script([ScriptedTurn::text("Hello.")]));
    send_as(&agent, &MessageId::generate(), "hi").await;
    let unknown_message = positive_feedback(MessageId::generate());
    let error = storage.conversations().record_feedback(&unknown_message).await.unwrap_err();
    assert!(matches!(error, ConversationError::MessageNotFound { .. }), "{error}");
    let unknown_session = UserFeedback {
        session_id: SessionId::new("unknown").unwrap(),
        ..positive_feedback(MessageId::generate())
    };
    let error = storage.conversations().record_feedback(&unknown_session).await.unwrap_err();
    assert!(matches!(error, ConversationError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn feedback_gives_up_after_repeated_conflicts() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    let agent =
        storage.agent(AgentFixture::new(), &RecordingModel::script([ScriptedTurn::text("Hello.")]));
    send_as(&agent, &id, "hi").await;
    let busy = storage.conversations_on(CrashingLog::with_fault(&storage, 0, Fault::Conflict));
    let error = busy.record_feedback(&positive_feedback(id)).await.unwrap_err();
    assert!(matches!(error, ConversationError::FeedbackConflict { .. }), "{error}");
    assert_eq!(storage.kinds().await, ["message", "answer"]);
}

#[tokio::test(start_paused = true)]
async fn open_approval_is_requested_again_under_its_id_and_a_decision_counts() {
    let approvals = || {
        let rules = json!({"rules": [{"tool": "work", "policy": "ask"}]});
        let section: ApprovalSection = serde_json::from_value(rules).unwrap();
        rockbot_agent::Approvals::new(section).unwrap()
    };
    let (storage, id) = (Storage::new(), MessageId::generate());
    let tool = JournaledTool::remote("work");
    let fixture = |approvals: &Arc<rockbot_agent::Approvals>| {
        let approvals = Some(approvals.clone());
        let fixture = AgentFixture { approvals, ..AgentFixture::new() };
        tool.register(&fixture.registry);
        fixture
    };
    let first_approvals = approvals();
    let first = storage.agent(fixture(&first_approvals), &one_call());
    let events = EventLog::default();
    let running = tokio::spawn({
        let (first, id, sink) = (first.clone(), id.clone(), events.sink());
        async move { drop(send_to(&first, &id, "go", sink).await) }
    });
    settle().await;
    let asked = events.approval_requests().remove(0);
    assert_eq!(storage.kinds().await, ["message", "model", "question"]);
    running.abort();
    drop(first);

    let second_approvals = approvals();
    let second = storage.agent(fixture(&second_approvals), &one_call());
    let events = EventLog::default();
    let resumed = tokio::spawn({
        let (second, events) = (second.clone(), events.clone());
        async move { resume(&second, &events).await.unwrap().1 }
    });
    settle().await;
    let again = events.approval_requests().remove(0);
    assert_eq!((&again.id, &again.hash), (&asked.id, &asked.hash));
    assert!(second_approvals.answer(&asked.answer("s", ApprovalDecision::AllowInSession)));
    assert_eq!(resumed.await.unwrap().text, "Done.");
    assert_eq!(tool.runs(), 1);

    // The permission is for the conversation, in whatever process.
    let third = storage.agent(fixture(&approvals()), &one_call());
    let events = EventLog::default();
    let answer = send_to(&third, &MessageId::generate(), "again", events.sink()).await;
    assert_eq!((answer.text.as_str(), tool.runs()), ("Done.", 2));
    assert!(events.approval_requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn steering_message_survives_its_process() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(crate::harness::calls(
            &[("a", "work", "{}")],
            rockbot_llm::FinishReason::ToolCalls,
        )),
        Answer::Never,
    ]));
    let first = storage.agent(AgentFixture::new().with(&work), &model);
    let (id, steer) = (MessageId::generate(), MessageId::generate());
    let spawn = |id: &MessageId, text: &'static str| {
        let (agent, id) = (first.clone(), id.clone());
        tokio::spawn(async move { drop(send_as(&agent, &id, text).await) })
    };
    let running = [spawn(&id, "go"), {
        work.wait_for_call().await;
        spawn(&steer, "rather this")
    }];
    settle().await;
    gate.add_permits(1);
    settle().await;
    assert_eq!(storage.kinds().await, ["message", "model", "result", "steer"]);
    running.iter().for_each(tokio::task::JoinHandle::abort);
    drop(first);

    let model = RecordingModel::script([ScriptedTurn::text("Both done.")]);
    let second = storage.agent(AgentFixture::new().with(&work), &model);
    let (recorded, answer) = resume(&second, &EventLog::default()).await.unwrap();
    assert_eq!((&recorded.id, answer.text.as_str()), (&id, "Both done."));
    assert_eq!(model.last_request().messages.len(), 5);
    second.conversations().unmark(&session(), &id).await.unwrap();
    // The steering message has an answer to publish too.
    let (recorded, again) = resume(&second, &EventLog::default()).await.unwrap();
    assert_eq!((recorded.id, again.text), (steer, answer.text));
}

#[tokio::test(start_paused = true)]
async fn turn_in_progress_is_not_resumed_twice() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let model = RecordingModel::new(CannedModel::new([Answer::Gated(gate.clone(), "Done.")]));
    let agent = storage.agent(AgentFixture::new(), &model);
    let running = tokio::spawn({
        let agent = agent.clone();
        let origin = rockbot_agent::TurnOrigin::new(EntryPoint::ScheduledTask);
        async move { agent.run_turn(origin, message("s", "go"), Arc::new(|_: TurnEvent| ())).await }
    });
    settle().await;
    assert!(resume(&agent, &EventLog::default()).await.is_none());
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().text, "Done.");
    tokio::time::sleep(Duration::from_millis(1)).await;
    // No client waits for a published answer.
    assert!(agent.conversations().unfinished().await.unwrap().is_empty());
}
