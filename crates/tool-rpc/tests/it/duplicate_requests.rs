//! Copies of the request of a running call, and deliveries whose channel is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_bus::PublishError;
use rockbot_contracts::{QueueSpec, topology::tool_invoke};
use rockbot_testkit::{
    InterceptedBus,
    fixture::{assert_never, key, wait_until, within_timeout},
};

use crate::{
    journal_fixture::{Call, Fixture, call, elsewhere},
    lossy_bus::LossyBus,
};

#[tokio::test]
async fn copies_of_running_call_do_not_fill_a_handler() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    let slow = call("write");
    fixture.send(&tool_invoke(), &slow).await;
    within_timeout("the tool", fixture.started.notified()).await;
    let copy = Call { maybe_redelivered: true, ..slow };
    // Ten times as many as a handler holds.
    for _ in 0..1300 {
        fixture.send(&tool_invoke(), &copy).await;
        fixture.send(&elsewhere(), &copy).await;
    }
    for handler in [tool_invoke(), elsewhere()] {
        fixture.send(&handler, &call("noisy")).await;
        assert_eq!(fixture.result().await.len(), 500_000);
    }
    fixture.gate.add_permits(1);
    // One reply for all copies at each handler.
    for _ in 0..2 {
        assert_eq!(fixture.result().await, "done, run 1");
    }
    assert_never("a further reply", fixture.replies.next()).await;
    assert!(here.workers.drain(Duration::from_secs(5)).await);
    assert!(there.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn copy_from_other_process_of_agent_returns_recorded_result() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let slow = call("write");
    fixture.send(&tool_invoke(), &slow).await;
    within_timeout("the tool", fixture.started.notified()).await;
    // The process that continues the turn has another address.
    fixture.caller = key("tool.result.agent.two");
    let queue = QueueSpec::reply(&fixture.caller, vec![(&fixture.caller).into()]);
    fixture.replies = fixture.bus.consume(queue, 10).await;
    fixture.send(&tool_invoke(), &Call { maybe_redelivered: true, ..slow }).await;
    assert_never("a reply during the call", fixture.replies.next()).await;
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn copies_waiting_for_another_handler_hold_no_permits() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    // As many as may run of one tool. The copies are not marked as retries.
    for _ in 0..6 {
        let call = call("write");
        fixture.send(&tool_invoke(), &call).await;
        within_timeout("the tool", fixture.started.notified()).await;
        fixture.send(&elsewhere(), &call).await;
    }
    wait_until("the copies", || {
        there.handler.in_progress() == 6 && there.handler.load().running == 0
    })
    .await;
    fixture.send(&elsewhere(), &call("write")).await;
    within_timeout("the seventh call", fixture.started.notified()).await;
    fixture.gate.add_permits(7);
    for _ in 0..13 {
        fixture.result().await;
    }
    assert_eq!(fixture.runs(), 7);
}

#[tokio::test]
async fn delivery_with_lost_channel_does_not_start() {
    // Calls of one tool that a handler runs.
    const RUNNING: u64 = 6;
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
    let here = fixture.handler_on(&bus, &tool_invoke(), true).await;
    for _ in 0..=RUNNING {
        fixture.send(&tool_invoke(), &call("read")).await;
    }
    wait_until("a waiting call", || here.handler.load().waiting == 1).await;
    let there = fixture.handler(&tool_invoke(), true).await;
    connection.lose();
    wait_until("the redelivery", || there.handler.load().waiting == 1).await;
    fixture.gate.add_permits(100);
    for _ in 0..RUNNING + RUNNING + 1 {
        fixture.result().await;
    }
    let is_idle = || here.handler.in_progress() + there.handler.in_progress() == 0;
    wait_until("no call is in progress", is_idle).await;
    // A read-only call that was running runs twice; the waiting one left its run to the redelivery.
    let ran = (here.handler.stats().ok(), there.handler.stats().ok());
    assert_eq!(ran, (RUNNING, RUNNING + 1));
}

#[tokio::test]
async fn copy_replies_after_unconfirmed_reply() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let (caller, has_failed) = (fixture.caller.clone(), Arc::new(AtomicBool::default()));
    let bus = InterceptedBus::wrap(fixture.bus.remote.clone(), move |bus, publication| {
        let key = publication.key.clone();
        let fails = key == caller && !has_failed.swap(true, Ordering::SeqCst);
        async move {
            if fails {
                let reason = "on purpose".to_owned();
                return Err(PublishError::Unconfirmed { key, reason });
            }
            bus.publish(publication).await
        }
    });
    let (bus, connection) = LossyBus::wrap(bus);
    let here = fixture.handler_on(&bus, &tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    fixture.send(&tool_invoke(), &Call { maybe_redelivered: true, ..call }).await;
    assert_never("a reply before the end", fixture.replies.next()).await;
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
    wait_until("no call is in progress", || here.handler.in_progress() == 0).await;
    assert_eq!((fixture.runs(), connection.retries()), (1, 1), "only the first delivery returned");
}

#[tokio::test]
async fn confirmed_reply_of_stopped_handler_is_not_repeated() {
    let mut fixture = Fixture::new().await;
    let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
    let here = fixture.handler_on(&bus, &tool_invoke(), true).await;
    connection.lose_acks();
    let calls = [call("write"), call("write")];
    for (call, run) in calls.iter().zip(1..) {
        fixture.send(&tool_invoke(), call).await;
        assert_eq!(fixture.result().await, format!("done, run {run}"));
    }
    assert!(here.workers.drain(Duration::from_secs(5)).await);
    connection.lose();
    let there = fixture.handler(&tool_invoke(), true).await;
    // It arrives after the redelivered ones.
    fixture.send(&tool_invoke(), &call("write")).await;
    assert_eq!(fixture.result().await, "done, run 3");
    wait_until("the settlement", || there.handler.in_progress() == 0).await;
    assert_never("a repeated reply", fixture.replies.next()).await;
    assert_eq!(there.handler.stats().replayed(), 0);
    // A caller that sends the request again has no reply.
    let [first, _] = calls;
    fixture.send(&tool_invoke(), &Call { maybe_redelivered: true, ..first }).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 3);
}
