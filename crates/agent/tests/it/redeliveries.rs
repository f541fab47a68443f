//! Redeliveries of messages whose processes stop or cannot reach the store.

use std::time::Duration;

use rockbot_agent::Sharing;
use rockbot_bus::{Publication, Subscription};
use rockbot_contracts::{
    Envelope, QueueSpec,
    topology::{MAX_DELIVERIES, user_message},
    user::TurnOutcome,
};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use tokio::time::{Instant, sleep};

use crate::{
    harness::{message, settle},
    replica_harness::{
        Fleet, LeaseOutage, answer, call_wait, next_answer, reply_address, say, tester,
    },
    stored_harness::{CrashingLog, Fault, Storage},
};

/// Exceeds the time for which a process tries to claim a conversation or to record a step.
const OUTAGE: Duration = Duration::from_secs(70);

fn with_lease_outage(fleet: &Fleet) -> Sharing {
    LeaseOutage::sharing(fleet, "two", OUTAGE)
}

#[tokio::test(start_paused = true)]
async fn redelivered_message_waits_for_the_store_without_an_answer() {
    let fleet = Fleet::new();
    let client = fleet.client().await.with_idle_timeout(2 * OUTAGE);
    let first = fleet.start("one", 4, [call_wait()]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    first.tool.wait_for_call().await;
    let second = fleet.start_with(with_lease_outage(&fleet), 4, [say("All done.")]).await;
    second.gate.add_permits(1);
    drop(first.inbox);
    sleep(OUTAGE).await;
    let (text, outcome, resumed) = answer(turn).await;
    assert_eq!((text.as_str(), outcome), ("All done.", TurnOutcome::Completed));
    assert_eq!(resumed, ["two"]);
}

#[tokio::test(start_paused = true)]
async fn new_message_is_overloaded_while_its_conversation_cannot_be_claimed() {
    let fleet = Fleet::new();
    let client = fleet.client().await.with_idle_timeout(2 * OUTAGE);
    let replica = fleet.start_with(with_lease_outage(&fleet), 4, [say("Hello.")]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    sleep(OUTAGE).await;
    let (text, outcome, _) = answer(turn).await;
    assert_eq!(outcome, TurnOutcome::Overloaded);
    assert!(text.contains("Nothing was done"), "{text}");
    sleep(OUTAGE).await;
    assert_eq!(replica.model.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn resent_message_waits_for_the_store_without_an_answer() {
    let fleet = Fleet::new();
    let mut replies = fleet.replies().await;
    let _replica = fleet.start_with(with_lease_outage(&fleet), 4, [say("Hello.")]).await;
    let envelope = Envelope::from_payload(&message("s", "hi")).reply_to(reply_address());
    let envelope = Envelope { attempt: 2, ..envelope };
    let publication = Publication::mandatory(user_message(&tester()), envelope);
    fleet.bus.publish(publication).await.unwrap();
    sleep(OUTAGE).await;
    assert_eq!(next_answer(&mut replies).await, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn message_with_unconfirmed_record_waits_for_the_store() {
    let mut fleet = Fleet::new();
    let storage = Storage { stores: fleet.stores.clone(), ..Storage::new() };
    let fault = Fault::UnconfirmedOutage(Instant::now() + OUTAGE);
    fleet.stores.log = CrashingLog::with_fault(&storage, 0, fault);
    let client = fleet.client().await.with_idle_timeout(2 * OUTAGE);
    let replica = fleet.start("one", 4, [say("Hello.")]).await;
    let turn = client.send(&tester(), &message("s", "go")).await.unwrap();
    sleep(OUTAGE).await;
    let (text, outcome, _) = answer(turn).await;
    assert_eq!((text.as_str(), outcome), ("Hello.", TurnOutcome::Completed));
    assert_eq!(replica.model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn turn_survives_more_restarts_than_deliveries() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let work = QueueSpec::work(&user_message(&tester()));
    let dead_letters = Subscription::on_receipt(work.dead_letters(), 4);
    let mut dead_letters = fleet.bus.consume(dead_letters).await.unwrap();
    let mut model_turns = vec![call_wait()];
    let mut turn = None;
    for number in 0..MAX_DELIVERIES + 2 {
        let replica = fleet.start(&format!("process-{number}"), 4, model_turns.drain(..)).await;
        if number == 0 {
            turn = Some(client.send(&tester(), &message("s", "go")).await.unwrap());
        }
        replica.tool.wait_for_call().await;
        replica.inbox.drain(Duration::ZERO).await;
    }
    let last = fleet.start("last", 4, [say("All done.")]).await;
    last.gate.add_permits(1);
    let (text, ..) = within_timeout("the answer", answer(turn.unwrap())).await;
    assert_eq!(text, "All done.");
    settle().await;
    assert_never("a dead letter", dead_letters.next()).await;
}
