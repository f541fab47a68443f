//! The inbox of an agent and its clients.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{Agent, AgentClient, AgentInbox, ReplyError, SendError, serve};
use rockbot_bus::{Bus, Consumer, Delivery, MemoryBus, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, Envelope, InstanceId, QueueKind, QueueSpec, ReplyBody, RoutingKey,
    ToolErrorCode, UserMessage,
    json::Limits,
    topology::{user_message, user_response},
    user::{ReplyDetail, TurnOutcome},
};
use rockbot_llm::{FinishReason, ScriptedTurn};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, ProbeTool, RecordingModel, calls, cancel, message,
    settle, text_events,
};

struct BusFixture {
    bus: Arc<dyn Bus>,
}

impl BusFixture {
    fn new() -> Self {
        Self { bus: Arc::new(MemoryBus::new()) }
    }

    async fn serve(&self, agent: Agent) -> AgentInbox {
        serve(agent, self.bus.clone(), 16).await.unwrap()
    }

    async fn client(&self, instance: &str) -> AgentClient {
        AgentClient::connect(self.bus.clone(), &InstanceId::new(instance).unwrap()).await.unwrap()
    }

    async fn publish(&self, envelope: Envelope) {
        self.bus.publish(Publication::mandatory(user_message(&tester()), envelope)).await.unwrap();
    }

    async fn consume(&self, queue: QueueSpec) -> Consumer {
        self.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap()
    }

    /// Consumes a reply queue and returns its address.
    async fn replies(&self, instance: &str) -> (RoutingKey, Consumer) {
        let reply_to = user_response(&InstanceId::new(instance).unwrap());
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let replies = self.consume(queue).await;
        (reply_to, replies)
    }

    /// Returns the reason of the next dead letter.
    async fn dead_letter(&self) -> String {
        let queue = QueueSpec::work(&user_message(&tester()));
        let queue = QueueSpec::dead_letters_of(&queue.name);
        assert_eq!(queue.kind, QueueKind::DeadLetters);
        let delivery = self.consume(queue).await.next().await.unwrap();
        let envelope = delivery.into_envelope();
        envelope.dead_letter_reason.unwrap().to_string()
    }
}

fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

async fn conversation(client: &AgentClient, message: UserMessage) -> Vec<AgentReply> {
    let mut replies = client.send(&tester(), &message).await.unwrap();
    let mut all = Vec::new();
    while let Some(reply) = replies.next().await {
        all.push(reply.unwrap());
    }
    all
}

fn reply(delivery: Delivery) -> AgentReply {
    delivery.into_envelope().decode(Limits::default()).unwrap()
}

/// Returns the next final reply.
async fn last(replies: &mut Consumer) -> AgentReply {
    loop {
        let reply = reply(replies.next().await.unwrap());
        if reply.is_final {
            return reply;
        }
    }
}

fn answer(reply: &AgentReply) -> (&str, TurnOutcome) {
    match &reply.body {
        ReplyBody::Answer { text, outcome, .. } => (text, *outcome),
        other => panic!("not an answer: {other:?}"),
    }
}

#[tokio::test]
async fn replies_are_ordered_and_end_with_the_answer() {
    let fixture = BusFixture::new();
    let (echo, broken) =
        (ProbeTool::new("echo", Behavior::Echo), ProbeTool::new("broken", Behavior::Fail));
    let model = RecordingModel::script([
        ScriptedTurn::text("Let me look.").call("echo", json!({"n": 1})).call("broken", json!({})),
        ScriptedTurn::text("All done."),
    ]);
    let inbox = fixture.serve(AgentFixture::new().with(&echo).with(&broken).agent(&model)).await;
    let client = fixture.client("proxy").await;
    let replies = conversation(&client, message("s", "go")).await;

    let sequences: Vec<_> = replies.iter().map(|reply| reply.sequence).collect();
    assert_eq!(sequences, (1..=replies.len() as u64).collect::<Vec<_>>());
    let (last, progress) = replies.split_last().unwrap();
    assert!(last.is_final && progress.iter().all(|reply| !reply.is_final));
    assert_eq!(answer(last), ("All done.", TurnOutcome::Completed));
    let text: String = progress
        .iter()
        .filter_map(|reply| match &reply.body {
            ReplyBody::TextDelta { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "Let me look.All done.");
    let ended: Vec<_> = progress
        .iter()
        .filter_map(|reply| match &reply.body {
            ReplyBody::ToolFinished { tool_name, error, .. } => {
                Some((tool_name.as_str(), error.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(ended, [("echo", None), ("broken", Some(ToolErrorCode::ExecutionFailed))]);
    assert!(replies.iter().all(|reply| reply.agent == tester()));
    assert!(inbox.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn detail_of_calls_is_sent_on_request() {
    let long = "x".repeat(20 * 1024);
    for (detail, shown, result_left_out) in [
        (ReplyDetail::Brief, 201, None),
        (ReplyDetail::Full, ReplyDetail::MAX_DETAIL_BYTES, Some(long.len() + 11 - 16 * 1024)),
    ] {
        let fixture = BusFixture::new();
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let call = ScriptedTurn::default().call("echo", json!({"text": long}));
        let model = RecordingModel::script([call, ScriptedTurn::text("Done.")]);
        let _inbox = fixture.serve(AgentFixture::new().with(&echo).agent(&model)).await;
        let client = fixture.client("proxy").await;
        let replies = conversation(&client, UserMessage { detail, ..message("s", "go") }).await;
        let started = replies.iter().find_map(|reply| match &reply.body {
            ReplyBody::ToolStarted { arguments, arguments_left_out, .. } => {
                Some((arguments.chars().count(), *arguments_left_out))
            }
            _ => None,
        });
        let whole = long.len() + 11;
        let kept = if detail == ReplyDetail::Full { shown } else { shown - 1 };
        assert_eq!(started, Some((shown, (whole - kept) as u64)));
        let finished = replies.iter().find_map(|reply| match &reply.body {
            ReplyBody::ToolFinished { result, result_left_out, .. } => {
                Some(result.as_ref().map(|_| *result_left_out as usize))
            }
            _ => None,
        });
        assert_eq!(finished, Some(result_left_out));
    }
}

#[tokio::test]
async fn clients_receive_only_their_replies() {
    let fixture = BusFixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let model = RecordingModel::script([
        ScriptedTurn::text("One.").when("one").call("work", json!({})),
        ScriptedTurn::text("The first."),
        ScriptedTurn::text("Two.").when("two").call("work", json!({})),
        ScriptedTurn::text("The second."),
    ]);
    let _inbox = fixture.serve(AgentFixture::new().with(&work).agent(&model)).await;
    let (first, second) = (fixture.client("p1").await, fixture.client("p2").await);
    let release = async {
        work.wait_for_call().await;
        work.wait_for_call().await;
        gate.add_permits(2);
    };
    let (one, two, ()) = tokio::join!(
        conversation(&first, message("a", "one")),
        conversation(&second, message("b", "two")),
        release
    );
    assert_eq!(answer(one.last().unwrap()).0, "The first.");
    assert_eq!(answer(two.last().unwrap()).0, "The second.");
    assert!(one.iter().all(|reply| reply.session_id.as_str() == "a"));
    assert!(two.iter().all(|reply| reply.session_id.as_str() == "b"));
}

#[tokio::test]
async fn reply_in_another_agents_name_is_dropped() {
    let fixture = BusFixture::new();
    let mut inbox = fixture.consume(QueueSpec::work(&user_message(&tester()))).await;
    let client = fixture.client("p1").await;
    let sent = message("s", "hello");
    let mut replies = client.send(&tester(), &sent).await.unwrap();
    let request = inbox.next().await.unwrap().into_envelope();
    for (agent, user, text) in [
        ("mallory", None, "forged"),
        ("tester", Some("rockbot.agent.mallory"), "forged"),
        ("tester", Some("rockbot.agent.tester"), "genuine"),
    ] {
        let (text, outcome) = (text.to_owned(), TurnOutcome::Completed);
        let mut envelope = Envelope::from_payload(&AgentReply {
            session_id: sent.session_id.clone(),
            in_reply_to: request.message_id.clone(),
            agent: AgentName::new(agent).unwrap(),
            sequence: 1,
            is_final: true,
            body: ReplyBody::Answer { text, outcome, usage: None },
        });
        envelope.user_id = user.map(Into::into);
        let reply_to = request.reply_to.clone().unwrap();
        fixture.bus.publish(Publication::mandatory(reply_to, envelope)).await.unwrap();
    }
    let reply = replies.next().await.unwrap().unwrap();
    let ReplyBody::Answer { text, .. } = reply.body else { panic!("no answer") };
    assert_eq!(text, "genuine");
}

#[tokio::test(start_paused = true)]
async fn turn_is_steered_and_cancelled_over_the_bus() {
    let fixture = BusFixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&[("a", "work", "")], FinishReason::ToolCalls)),
        Answer::Events(calls(&[("b", "stuck", "")], FinishReason::ToolCalls)),
    ]));
    let _inbox = fixture.serve(AgentFixture::new().with(&work).with(&stuck).agent(&model)).await;
    let client = fixture.client("proxy").await;
    let first = client.send(&tester(), &message("s", "go")).await.unwrap();
    work.wait_for_call().await;
    let mut second = client.send(&tester(), &message("s", "rather this")).await.unwrap();
    settle().await;
    gate.add_permits(1);
    let steered = second.next().await.unwrap().unwrap();
    assert!(matches!(steered.body, ReplyBody::Steered {}) && !steered.is_final);
    stuck.wait_for_call().await;
    let third = client.send(&tester(), &cancel("s")).await.unwrap();
    for replies in [first, second, third] {
        let last = replies.last().await.unwrap();
        assert_eq!(answer(&last).1, TurnOutcome::Cancelled);
    }
    assert!(stuck.token().is_cancelled());
}

#[tokio::test]
async fn forged_or_missing_reply_to_is_dead_lettered() {
    let fixture = BusFixture::new();
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let victim = RoutingKey::new("tool.invoke").unwrap();
    let mut victims_queue = fixture.consume(QueueSpec::work(&victim)).await;

    fixture.publish(Envelope::from_payload(&message("s", "go")).reply_to(victim)).await;
    let reason = fixture.dead_letter().await;
    assert!(reason.contains("not an agent reply address"), "{reason}");
    fixture.publish(Envelope::from_payload(&message("s", "go"))).await;
    let reason = fixture.dead_letter().await;
    assert!(reason.contains("reply-to is missing"), "{reason}");
    assert_eq!(model.request_count(), 0);
    victims_queue.cancel().await;
    assert!(victims_queue.next().await.is_none());
}

#[tokio::test]
async fn invalid_message_is_dead_lettered() {
    let fixture = BusFixture::new();
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let reply_to = user_response(&InstanceId::new("proxy").unwrap());
    for body in ["not json", r#"{"sessionId":"","text":"x"}"#, r#"{"text":"x"}"#] {
        let envelope = Envelope::raw("UserMessage", body.into()).reply_to(reply_to.clone());
        fixture.publish(envelope).await;
        let reason = fixture.dead_letter().await;
        assert!(reason.contains("not a valid UserMessage"), "{reason}");
    }
}

#[tokio::test]
async fn redelivered_message_is_answered_as_lost() {
    let fixture = BusFixture::new();
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([ScriptedTurn::default().call("echo", json!({}))]);
    let client = fixture.client("proxy").await;
    let queue = QueueSpec::work(&user_message(&tester()));
    let mut lost_process = fixture.bus.consume(Subscription::new(queue, 16)).await.unwrap();
    let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    drop(lost_process.next().await.unwrap());
    drop(lost_process);
    let _inbox = fixture.serve(AgentFixture::new().with(&echo).agent(&model)).await;
    let last = replies.last().await.unwrap();
    let (text, outcome) = answer(&last);
    assert_eq!(outcome, TurnOutcome::ModelFailed);
    assert!(text.contains("process of the agent died"), "{text}");
    assert_eq!((echo.calls(), model.request_count()), (0, 0));
}

#[tokio::test]
async fn expired_message_is_not_run() {
    let fixture = BusFixture::new();
    let queue = QueueSpec::work(&user_message(&tester()));
    let mut reader = fixture.consume(queue).await;
    let client = fixture.client("proxy").await.with_idle_timeout(Duration::from_secs(7));
    let _replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    let envelope = reader.next().await.unwrap().into_envelope();
    assert_eq!(envelope.budget.unwrap().timeout, Duration::from_secs(7));

    // The budget expires before an agent receives the message.
    drop(reader);
    let (reply_to, mut replies) = fixture.replies("late").await;
    fixture.publish(envelope.within(Duration::ZERO).reply_to(reply_to)).await;
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let reply = reply(replies.next().await.unwrap());
    let (text, outcome) = answer(&reply);
    assert!(reply.is_final && text.contains("Nothing was done"), "{reply:?}");
    assert_eq!((outcome, model.request_count()), (TurnOutcome::Expired, 0));
    assert!(inbox.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn early_cancel_applies_only_to_earlier_messages() {
    let fixture = BusFixture::new();
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let (reply_to, mut replies) = fixture.replies("proxy").await;
    let envelope_of =
        |message: &UserMessage| Envelope::from_payload(message).reply_to(reply_to.clone());
    let (first, elsewhere) =
        (envelope_of(&message("s", "go")), envelope_of(&message("other", "go")));
    let cancelled = envelope_of(&cancel("s"));
    let after = envelope_of(&message("s", "again"));
    for (envelope, outcome) in [
        (cancelled, TurnOutcome::Cancelled),
        (first, TurnOutcome::Cancelled),
        (after, TurnOutcome::Completed),
        (elsewhere, TurnOutcome::Completed),
    ] {
        fixture.publish(envelope).await;
        let reply = last(&mut replies).await;
        assert_eq!(answer(&reply).1, outcome, "{reply:?}");
    }
    assert_eq!(model.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn duplicate_message_is_answered_once() {
    let fixture = BusFixture::new();
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let (reply_to, mut replies) = fixture.replies("proxy").await;
    let envelope = Envelope::from_payload(&message("s", "go")).reply_to(reply_to);
    fixture.publish(envelope.clone()).await;
    fixture.publish(envelope).await;
    let mut finals = 0;
    while let Ok(Some(delivery)) = timeout(Duration::from_secs(1), replies.next()).await {
        finals += u32::from(reply(delivery).is_final);
    }
    assert_eq!((finals, model.request_count(), inbox.stats().acked()), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn unroutable_answer_is_dropped_and_message_acked() {
    let fixture = BusFixture::new();
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let reply_to = user_response(&InstanceId::new("gone").unwrap());
    fixture.publish(Envelope::from_payload(&message("s", "go")).reply_to(reply_to)).await;
    settle().await;
    let stats = inbox.stats();
    assert_eq!((stats.acked(), stats.retried()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn drain_answers_every_message() {
    let fixture = BusFixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "Done."),
        Answer::Never,
    ]));
    let inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let client = fixture.client("proxy").await;
    let quick = client.send(&tester(), &message("quick", "go")).await.unwrap();
    settle().await;
    let stuck = client.send(&tester(), &message("stuck", "go")).await.unwrap();
    settle().await;
    let drained = tokio::spawn(inbox.drain(Duration::from_secs(20)));
    settle().await;
    let late = client.send(&tester(), &message("late", "go")).await.unwrap();
    gate.add_permits(1);
    assert_eq!(answer(&quick.last().await.unwrap()), ("Done.", TurnOutcome::Completed));
    let stuck = stuck.last().await.unwrap();
    assert_eq!(answer(&stuck).1, TurnOutcome::Cancelled);
    assert!(answer(&stuck).0.contains("shutting down"));
    assert!(!drained.await.unwrap(), "one turn was cancelled");

    // A message after the drain is left for the next process.
    let model = RecordingModel::new(CannedModel::new([Answer::Events(text_events("Here I am."))]));
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    assert_eq!(answer(&late.last().await.unwrap()).0, "Here I am.");
}

#[tokio::test]
async fn unavailable_agent_returns_error() {
    let fixture = BusFixture::new();
    let client = fixture.client("proxy").await;
    let error = client.send(&tester(), &message("s", "go")).await.unwrap_err();
    assert!(
        matches!(&error, SendError::AgentUnavailable { agent } if *agent == tester()),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_ends_replies_and_drops_late_ones() {
    let fixture = BusFixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "Too late."),
        Answer::Events(text_events("In time.")),
    ]));
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let client = fixture.client("proxy").await;
    let mut replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    let silent = replies.next().await.unwrap().unwrap_err();
    assert!(matches!(silent, ReplyError::Silent { after } if after.as_secs() == 120), "{silent}");
    assert!(replies.next().await.is_none());
    gate.add_permits(1);
    settle().await;
    drop(replies);
    let replies = conversation(&client, message("s", "again")).await;
    assert_eq!(answer(replies.last().unwrap()).0, "In time.");
}

#[tokio::test]
async fn closed_bus_ends_replies() {
    let fixture = BusFixture::new();
    let model = RecordingModel::new(CannedModel::new([Answer::Never]));
    let _inbox = fixture.serve(AgentFixture::new().agent(&model)).await;
    let client = fixture.client("proxy").await;
    let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    fixture.bus.close().await;
    assert!(matches!(replies.last().await.unwrap_err(), ReplyError::Closed));
}
