//! Repeated deliveries of a call: to the same or another handler, at once or later, with other arguments.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, ToolErrorCode, topology::tool_invoke};
use rockbot_testkit::{
    InterceptedBus,
    fixture::{assert_never, within_timeout},
};
use tokio::sync::Semaphore;

use crate::journal_fixture::{Call, Fixture, call, elsewhere};

#[tokio::test]
async fn repeated_call_returns_recorded_reply() {
    let mut fixture = Fixture::new().await;
    let here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.clock.advance(Duration::from_secs(3600));
    fixture.send(&elsewhere(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(
        (fixture.runs(), here.handler.stats().replayed(), there.handler.stats().replayed()),
        (1, 1, 2)
    );
    // The entry expires after a day.
    fixture.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(fixture.entries().await, 0);
}

#[tokio::test]
async fn concurrent_call_at_two_handlers_runs_once() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    fixture.send(&elsewhere(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    assert_never("a reply before the end", fixture.replies.next()).await;
    fixture.gate.add_permits(2);
    for _ in 0..2 {
        assert_eq!(fixture.result().await, "done, run 1");
    }
    assert_eq!(fixture.runs(), 1);
    assert!(here.workers.drain(Duration::from_secs(5)).await);
    assert!(there.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn retry_during_reply_gets_a_second_reply() {
    let mut fixture = Fixture::new().await;
    let confirm = Arc::new(Semaphore::new(0));
    let (caller, confirmed) = (fixture.caller.clone(), confirm.clone());
    let slow = InterceptedBus::wrap(fixture.bus.remote.clone(), move |bus, publication| {
        let confirmed = confirmed.clone();
        let is_reply = publication.key == caller;
        async move {
            bus.publish(publication).await?;
            if is_reply {
                confirmed.acquire().await.expect("an open gate").forget();
            }
            Ok(())
        }
    });
    let _here = fixture.handler_on(&slow, &tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // The caller may have missed that reply, and retries before it is confirmed.
    fixture.send(&tool_invoke(), &call).await;
    assert_never("a second reply before the confirm", fixture.replies.next()).await;
    confirm.add_permits(2);
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn call_running_elsewhere_is_not_reported_unexecuted() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    // Not marked as a retry, and with a short timeout.
    fixture.send_within(&elsewhere(), &call, Duration::from_millis(300)).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Timeout, Executed::Unknown));
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn call_of_dead_handler_reruns_only_if_idempotent() {
    for (name, expected) in [("write", None), ("set", Some("done, run 2"))] {
        let mut fixture = Fixture::new().await;
        fixture.close_gate();
        let here = fixture.handler(&tool_invoke(), true).await;
        let call = call(name);
        fixture.send(&tool_invoke(), &call).await;
        within_timeout("the tool", fixture.started.notified()).await;
        // Dropped without releasing its lease.
        drop(here);
        let _there = fixture.handler(&elsewhere(), true).await;
        let retry = Call { maybe_redelivered: true, ..call };
        fixture.send(&elsewhere(), &retry).await;
        assert_never("a reply before the lease expires", fixture.replies.next()).await;
        fixture.gate.add_permits(10);
        fixture.clock.advance(Duration::from_secs(11));
        match expected {
            Some(text) => assert_eq!(fixture.result().await, text),
            None => {
                let unknown = (ToolErrorCode::OutcomeUnknown, Executed::Unknown);
                assert_eq!(fixture.error().await, unknown);
                // A further retry has the same outcome.
                fixture.send(&elsewhere(), &retry).await;
                assert_eq!(fixture.error().await, unknown);
                assert_eq!(fixture.runs(), 1);
            }
        }
    }
}

#[tokio::test]
async fn stopped_handler_releases_its_calls() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    assert!(!here.workers.drain(Duration::ZERO).await, "the call is in progress");
    here.journal.stop().await;
    let _there = fixture.handler(&tool_invoke(), true).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
}

#[tokio::test]
async fn end_of_a_consumer_is_reported() {
    let fixture = Fixture::new().await;
    let here = fixture.handler(&tool_invoke(), true).await;
    assert_never("an end", here.workers.ended()).await;
    // Its consumers end, although nothing stopped their workers.
    fixture.bus.remote.close().await;
    within_timeout("the workers end", here.workers.ended()).await;
}

#[tokio::test]
async fn id_reuse_by_another_call_is_rejected() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let mut others = vec![call.clone(), call.clone(), call];
    others[0].request.arguments = r#"{"text":"other"}"#.to_owned();
    others[1].request.tool_name = "set".to_owned();
    others[2].agent = "mallory".to_owned();
    for other in others {
        fixture.send(&tool_invoke(), &other).await;
        assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn read_only_call_is_not_recorded() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &call("read")).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.entries().await, 0);
    fixture.send(&tool_invoke(), &call("write")).await;
    assert_eq!(fixture.result().await, "done, run 2");
    assert_eq!(fixture.entries().await, 1);
}

#[tokio::test]
async fn unrecorded_retry_runs_only_with_shared_journal() {
    let mut fixture = Fixture::new().await;
    let retry = || Call { maybe_redelivered: true, ..call("write") };
    let _shared = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &retry()).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let _unshared = fixture.handler(&elsewhere(), false).await;
    fixture.send(&elsewhere(), &retry()).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn unavailable_journal_blocks_all_but_read_only_calls() {
    let mut fixture = Fixture::new().await;
    fixture.store.close().await;
    let _shared = fixture.handler(&tool_invoke(), true).await;
    let _unshared = fixture.handler(&elsewhere(), false).await;
    let retry = || Call { maybe_redelivered: true, ..call("write") };
    for (handler, call, executed) in [
        // A copy may run in another handler.
        (tool_invoke(), call("write"), Executed::Unknown),
        (tool_invoke(), retry(), Executed::Unknown),
        // Other handlers refuse the copies of this one.
        (elsewhere(), call("write"), Executed::No),
        (elsewhere(), retry(), Executed::Unknown),
    ] {
        fixture.send(&handler, &call).await;
        assert_eq!(fixture.error().await, (ToolErrorCode::Unavailable, executed));
    }
    assert_eq!(fixture.runs(), 0);
    fixture.send(&tool_invoke(), &call("read")).await;
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn oversized_reply_is_recorded_as_finished() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("noisy");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await.len(), 500_000);
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::ExecutionFailed, Executed::Yes));
}

#[tokio::test]
async fn running_call_rejects_same_id_with_other_arguments() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    let mut other = call.clone();
    other.request.arguments = r#"{"text":"other"}"#.to_owned();
    fixture.send(&tool_invoke(), &other).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn calls_waiting_for_a_lease_hold_no_permits() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    // As many as may run of one tool.
    let lost: Vec<_> = (0..6).map(|_| call("write")).collect();
    for call in &lost {
        fixture.send(&tool_invoke(), call).await;
        within_timeout("the tool", fixture.started.notified()).await;
    }
    drop(here);
    let _there = fixture.handler(&elsewhere(), true).await;
    for call in lost {
        fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    }
    assert_never("a reply before the lease expires", fixture.replies.next()).await;
    fixture.gate.add_permits(1);
    fixture.send(&elsewhere(), &call("write")).await;
    assert_eq!(fixture.result().await, "done, run 7");
}
