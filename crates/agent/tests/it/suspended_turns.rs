//! Suspended turns: the store that the processes share is unavailable for longer than a step waits.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Consumer, MemoryBus, Publication};
use rockbot_contracts::{
    AgentReply, Envelope, MessageId, ReplyBody, UserMessage, json::Limits, topology::user_message,
};
use rockbot_store::Stores;
use tokio::time::{Instant, timeout};

use crate::{
    harness::{message, settle},
    replica_harness::{Fleet, call_wait, reply_address, say, tester},
    stored_harness::{CrashingLog, Fault, Storage},
};

/// Exceeds the 60 s for which a step waits for the store.
const OUTAGE: Duration = Duration::from_secs(100);

/// Returns a fleet whose log fails appends from the third entry on, until `end`.
fn fleet_with_outage(end: Instant) -> Fleet {
    let storage = Storage::new();
    let log = CrashingLog::with_fault(&storage, 2, Fault::Outage(end));
    let stores = Stores { store: storage.stores.store.clone(), log };
    Fleet { bus: Arc::new(MemoryBus::new()), stores }
}

/// Publishes a message, and returns its id.
async fn publish(fleet: &Fleet, message: &UserMessage) -> MessageId {
    let envelope = Envelope::from_payload(message).reply_to(reply_address());
    let id = envelope.message_id.clone();
    fleet.bus.publish(Publication::mandatory(user_message(&tester()), envelope)).await.unwrap();
    id
}

/// Reads replies until there are `answers` final ones. Fails if one arrives before `end`.
async fn replies_until(replies: &mut Consumer, answers: usize, end: Instant) -> Vec<AgentReply> {
    let (mut read, mut finals) = (Vec::new(), 0);
    while finals < answers {
        let delivery = timeout(2 * OUTAGE, replies.next()).await.expect("a reply").unwrap();
        let reply: AgentReply = delivery.into_envelope().decode(Limits::default()).unwrap();
        if reply.is_final {
            assert!(Instant::now() >= end, "answered without a record: {reply:?}");
            finals += 1;
        }
        read.push(reply);
    }
    read
}

fn is_waiting(reply: &AgentReply) -> bool {
    matches!(&reply.body, ReplyBody::TaskStatus { status, .. } if status == "waiting")
}

fn text(reply: &AgentReply) -> &str {
    match &reply.body {
        ReplyBody::Answer { text, .. } => text,
        other => panic!("not an answer: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn suspended_turn_has_one_final_reply() {
    let end = Instant::now() + OUTAGE;
    let fleet = fleet_with_outage(end);
    let mut replies = fleet.replies().await;
    let replica = fleet.start("one", 4, [call_wait(), say("Done.")]).await;
    publish(&fleet, &message("s", "go")).await;
    replica.gate.add_permits(2);
    let read = replies_until(&mut replies, 1, end).await;
    assert_eq!(read.iter().filter(|reply| is_waiting(reply)).count(), 1, "{read:?}");
    assert_eq!(text(&read[read.len() - 1]), "Done.");
    let increasing = read.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
    assert!(increasing, "{read:?}");
    settle().await;
    assert!(replica.inbox.drain(Duration::from_secs(5)).await);
    fleet.expect_no_reply(&mut replies).await;
}

#[tokio::test(start_paused = true)]
async fn message_queued_in_suspended_turn_is_answered_once() {
    let end = Instant::now() + OUTAGE;
    let fleet = fleet_with_outage(end);
    let mut replies = fleet.replies().await;
    let replica = fleet.start("one", 4, [call_wait(), say("Done."), say("Done again.")]).await;
    let first = publish(&fleet, &message("s", "go")).await;
    replica.tool.wait_for_call().await;
    let second = publish(&fleet, &message("s", "and then")).await;
    settle().await;
    replica.gate.add_permits(2);
    let read = replies_until(&mut replies, 2, end).await;
    for id in [&first, &second] {
        let finals = read.iter().filter(|reply| reply.in_reply_to == *id && reply.is_final);
        assert_eq!(finals.count(), 1, "{read:?}");
    }
    settle().await;
    assert!(replica.inbox.drain(Duration::from_secs(5)).await);
    fleet.expect_no_reply(&mut replies).await;
}
