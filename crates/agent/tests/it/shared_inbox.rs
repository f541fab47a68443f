//! Several processes of one agent, which share its conversations.

use std::time::Duration;

use rockbot_agent::Sharing;
use rockbot_bus::{Publication, Subscription};
use rockbot_contracts::{
    AgentReply, Envelope, ForwardedMessage, InstanceId, MessageId, QueueSpec, ReplyBody,
    UserMessage,
    json::Limits,
    topology::{user_message, user_message_at},
    user::TurnOutcome,
};
use rockbot_store::{LogName, Prefix, Write};
use rockbot_testkit::fixture::within_timeout;
use serde_json::Value;

use crate::{
    harness::{cancel, message, settle},
    replica_harness::{
        Fleet, LeaseOutage, Replica, answer, call_wait, next_answer, next_reply, reply_address,
        say, tester,
    },
};

#[tokio::test(start_paused = true)]
async fn message_steers_the_turn_of_another_process() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    // It takes no second message from the inbox.
    let first = fleet.start("one", 1, [call_wait(), say("Only the names.")]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let second = fleet.start("two", 4, []).await;
    let mut steering = client.send(&tester(), &message("s", "only the names")).await.unwrap();
    settle().await;
    first.gate.add_permits(1);
    let steered = within_timeout("a reply", steering.next()).await.unwrap().unwrap();
    assert_eq!(steered.body, ReplyBody::Steered {});
    for replies in [turn, steering] {
        let (text, outcome, resumed) = answer(replies).await;
        assert_eq!((text.as_str(), outcome), ("Only the names.", TurnOutcome::Completed));
        assert!(resumed.is_empty());
    }
    assert_eq!(second.model.request_count(), 0);
    assert!(second.inbox.drain(Duration::from_secs(5)).await);
    assert!(first.inbox.drain(Duration::from_secs(5)).await);
}

/// Publishes a message with a chosen id.
async fn publish(fleet: &Fleet, id: &MessageId, message: &UserMessage) {
    let envelope = Envelope { message_id: id.clone(), ..Envelope::from_payload(message) };
    let envelope = envelope.reply_to(reply_address());
    let publication = Publication::mandatory(user_message(&tester()), envelope);
    fleet.bus.publish(publication).await.unwrap();
}

fn after(id: &MessageId, text: &str) -> UserMessage {
    UserMessage { after: Some(id.clone()), ..message("s", text) }
}

/// Returns the recorded texts of users, in order.
async fn recorded_texts(fleet: &Fleet) -> Vec<String> {
    let name = LogName::new(["conversation", "tester", "s"]).unwrap();
    let entries = fleet.stores.log.read(&name, 1, 100).await.unwrap();
    let entries = entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap());
    let texts =
        entries.filter(|entry: &Value| entry["kind"] == "message" || entry["kind"] == "steer");
    texts.map(|entry| entry["text"].as_str().unwrap().to_owned()).collect()
}

/// Waits until this number of texts of users is recorded, and returns them.
async fn wait_for_texts(fleet: &Fleet, count: usize) -> Vec<String> {
    let all = async {
        loop {
            let texts = recorded_texts(fleet).await;
            if texts.len() >= count {
                return texts;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within_timeout("all messages", all).await
}

#[tokio::test(start_paused = true)]
async fn messages_that_reach_several_processes_keep_their_order() {
    let fleet = Fleet::new();
    let _client = fleet.client().await;
    let [one, two, three] = std::array::from_fn(|_| MessageId::generate());
    let answers = || std::iter::repeat_with(|| say("Noted.")).take(3);
    // It receives the later messages first, and no further one.
    let second = fleet.start("two", 2, answers()).await;
    publish(&fleet, &three, &after(&two, "three")).await;
    publish(&fleet, &two, &after(&one, "two")).await;
    settle().await;
    assert_eq!(second.model.request_count(), 0);
    let _first = fleet.start("one", 1, answers()).await;
    publish(&fleet, &one, &message("s", "one")).await;
    assert_eq!(wait_for_texts(&fleet, 3).await, ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn message_does_not_overtake_one_that_waits_for_the_lease() {
    let fleet = Fleet::new();
    let _client = fleet.client().await;
    // The first attempt to claim the conversation fails, and the next one is 100 ms later.
    let outage = Duration::from_millis(50);
    let sharing = LeaseOutage::sharing(&fleet, "one", outage);
    let _replica = fleet.start_with(sharing, 4, [say("Noted."), say("Noted.")]).await;
    let [one, two] = std::array::from_fn(|_| MessageId::generate());
    publish(&fleet, &one, &message("s", "one")).await;
    tokio::time::sleep(outage + Duration::from_millis(10)).await;
    publish(&fleet, &two, &after(&one, "two")).await;
    assert_eq!(wait_for_texts(&fleet, 2).await, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn message_waits_only_shortly_for_one_that_is_lost() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let _replica = fleet.start("one", 4, [say("Noted.")]).await;
    let started = tokio::time::Instant::now();
    let lost = after(&MessageId::generate(), "go");
    let (text, ..) = answer(client.send(&tester(), &lost).await.unwrap()).await;
    assert_eq!(text, "Noted.");
    assert!((2..4).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn client_names_the_message_that_it_sent_before() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let queue = QueueSpec::work(&user_message(&tester()));
    let mut received = fleet.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
    let first = client.send(&tester(), &message("s", "one")).await.unwrap();
    let cancel = client.send(&tester(), &cancel("s")).await.unwrap();
    let other = client.send(&tester(), &message("t", "elsewhere")).await.unwrap();
    let second = client.send(&tester(), &message("s", "two")).await.unwrap();
    let id = first.message_id().clone();
    drop((first, cancel, other, second));
    let _later = client.send(&tester(), &message("s", "three")).await.unwrap();
    let mut named = Vec::new();
    for _ in 0..5 {
        let delivery = within_timeout("a message", received.next()).await.unwrap();
        let sent: UserMessage = delivery.into_envelope().decode(Limits::default()).unwrap();
        named.push(sent.after);
    }
    assert_eq!(named, [None, None, None, Some(id), None]);
}

#[tokio::test]
async fn cancel_reaches_the_turn_of_another_process() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 1, [call_wait()]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let _second = fleet.start("two", 4, []).await;
    let cancelling = client.send(&tester(), &cancel("s")).await.unwrap();
    for replies in [turn, cancelling] {
        assert_eq!(answer(replies).await.1, TurnOutcome::Cancelled);
    }
}

#[tokio::test]
async fn turn_of_dead_process_continues_in_another() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 4, [call_wait()]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let second = fleet.start("two", 4, [say("All done.")]).await;
    drop(first.inbox);
    second.tool.wait_for_call().await;
    second.gate.add_permits(1);
    let (text, outcome, resumed) = answer(turn).await;
    assert_eq!((text.as_str(), outcome), ("All done.", TurnOutcome::Completed));
    assert_eq!(resumed, ["two"]);
    assert_eq!(first.tool.ids(), second.tool.ids(), "the call is made again under its id");
    let attempt = second.tool.contexts.lock().unwrap()[0].attempt;
    assert_eq!((attempt, second.tool.calls()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn process_that_lost_its_lease_leaves_its_calls_to_the_other() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 4, [call_wait()]).await;
    let _turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let prefix = Prefix::new(["conversation-owners"]).unwrap();
    let (lease, _) = fleet.stores.store.list(&prefix, None, 10).await.unwrap().remove(0);
    // As if this process had been suspended for longer than its lease.
    fleet.stores.store.write(Write::new(lease, "another-process")).await.unwrap();
    let context = first.tool.contexts.lock().unwrap()[0].clone();
    within_timeout("the handover", context.handover.cancelled()).await;
    settle().await;
    assert!(!context.cancellation.is_cancelled());
    let name = LogName::new(["conversation", "tester", "s"]).unwrap();
    assert_eq!(fleet.stores.log.state(&name).await.unwrap().unwrap().entries, 2);
}

#[tokio::test]
async fn stopping_process_hands_its_turn_over_after_the_step() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 4, [call_wait()]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let second = fleet.start("two", 4, [say("All done.")]).await;
    let Replica { inbox, gate, tool, .. } = first;
    let draining = tokio::spawn(inbox.drain(Duration::from_secs(20)));
    gate.add_permits(1);
    let (text, _, resumed) = answer(turn).await;
    assert_eq!((text.as_str(), resumed), ("All done.", vec!["two".to_owned()]));
    assert!(within_timeout("the drain", draining).await.unwrap());
    assert_eq!((tool.calls(), second.tool.calls()), (1, 0));
    assert_eq!(second.model.tool_results(), ["wait is done"]);
}

#[tokio::test]
async fn conversation_continues_in_any_process() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 4, [say("Hello.")]).await;
    let turn = client.send(&tester(), &message("s", "my name is Ada")).await.unwrap();
    assert_eq!(answer(turn).await.0, "Hello.");
    assert!(first.inbox.drain(Duration::from_secs(5)).await);
    let second = fleet.start("two", 4, [say("Ada.")]).await;
    let turn = client.send(&tester(), &message("s", "do you know my name?")).await.unwrap();
    let (text, _, resumed) = answer(turn).await;
    assert_eq!((text.as_str(), resumed.len()), ("Ada.", 0));
    let said = format!("{:?}", second.model.last_request().messages);
    assert!(said.contains("my name is Ada") && said.contains("Hello."), "{said}");
}

#[tokio::test]
async fn open_turn_without_a_delivery_is_found_and_continued() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let first = fleet.start("one", 4, [call_wait()]).await;
    let _turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    drop(first.inbox);
    // On another bus, the message of the turn is not delivered.
    let other = fleet.on_another_bus();
    let mut replies = other.replies().await;
    let second = other.start("two", 4, [say("All done.")]).await;
    second.gate.add_permits(1);
    let first_reply = next_reply(&mut replies).await;
    assert!(matches!(first_reply.body, ReplyBody::Resumed { attempt: 2, .. }), "{first_reply:?}");
    assert_eq!(first_reply.sequence, AgentReply::sequence_base(2) + 1);
    while !next_reply(&mut replies).await.is_final {}
    assert!(second.inbox.drain(Duration::from_secs(5)).await);
    assert_eq!(second.model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn forwarded_message_of_another_user_is_dropped() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let sharing = Sharing::new(fleet.stores.store.clone(), InstanceId::new("one").unwrap());
    // The bus of the test validates no users, so every message is from another one.
    let sharing = sharing.with_user(Some("rockbot.agent.tester".to_owned()));
    let first = fleet.start_with(sharing, 4, [call_wait()]).await;
    let _turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let prefix = Prefix::new(["conversation-owners"]).unwrap();
    let leases = fleet.stores.store.list(&prefix, None, 10).await.unwrap();
    let owner = String::from_utf8(leases[0].1.value.to_vec()).unwrap();
    let forwarded = ForwardedMessage {
        from: InstanceId::new("mallory").unwrap(),
        sender: None,
        message: message("t", "do it"),
    };
    let envelope = Envelope::from_payload(&forwarded).reply_to(reply_address());
    let envelope = envelope.with_correlation_id("x");
    let key = user_message_at(&tester(), &InstanceId::new(owner).unwrap());
    fleet.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
    settle().await;
    assert_eq!(first.model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn marker_of_published_answer_is_removed_without_another_turn() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let replica = fleet.start("one", 4, [call_wait(), say("Done.")]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    replica.tool.wait_for_call().await;
    let prefix = Prefix::new(["open"]).unwrap();
    let markers = async || fleet.stores.store.list(&prefix, None, 10).await.unwrap();
    let (key, entry) = markers().await.remove(0);
    replica.gate.add_permits(1);
    assert_eq!(answer(turn).await.0, "Done.");
    settle().await;
    assert!(markers().await.is_empty());
    // As if its removal had failed.
    fleet.stores.store.write(Write::new(key, entry.value.to_vec())).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(markers().await.is_empty());
    assert_eq!(replica.model.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn message_that_is_sent_again_gets_its_answer_again() {
    let fleet = Fleet::new();
    let mut replies = fleet.replies().await;
    let replica = fleet.start("one", 4, [say("Hello.")]).await;
    let envelope = Envelope::from_payload(&message("s", "hi")).reply_to(reply_address());
    for _ in 0..2 {
        let publication = Publication::mandatory(user_message(&tester()), envelope.clone());
        fleet.bus.publish(publication).await.unwrap();
        assert_eq!(next_answer(&mut replies).await, "Hello.");
        settle().await;
    }
    assert_eq!(replica.model.request_count(), 1);
}
