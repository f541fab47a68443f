//! Faults of the network between a process and the broker.

use std::time::Duration;

use rockbot_bus::{Bus, PublishError, Request, Requester, Subscription};
use rockbot_testkit::{
    FaultProxy,
    fixture::{
        ack_next, key, reply_address, test_broker_url, text_message, within_timeout, work_queue,
    },
    proxy::Direction,
};
use tokio::time::{Instant, timeout};

use crate::test_process::{BACK_WITHIN, PUBLISH_TIMEOUT, SHORT, TestProcess, reason_not_sent};

/// Connects a process through a proxy.
async fn process_behind_proxy() -> (FaultProxy, TestProcess) {
    let proxy = FaultProxy::start(&test_broker_url()).await;
    let process = TestProcess::connect(proxy.url()).await;
    (proxy, process)
}

#[tokio::test]
async fn confirmed_messages_survive_repeated_cuts() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut confirmed = process.publish_all_until_confirmed("jobs", "before", 10).await;
    for cut in 1..=3 {
        let connections = proxy.connections();
        proxy.cut_all();
        // Some of these are published on the dead connection.
        confirmed
            .extend(process.publish_all_until_confirmed("jobs", &format!("cut {cut}"), 10).await);
        within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
        process.wait_until_ready("a cut").await;
    }
    confirmed.extend(process.publish_all_until_confirmed("jobs", "after", 10).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn request_lost_in_repeated_cuts_is_retried() {
    let (proxy, process) = process_behind_proxy().await;
    // Not behind the proxy; acknowledges the first attempt without a reply.
    let handler = process.join(&test_broker_url()).await;
    let requests = Subscription::new(work_queue("requests"), 1);
    let mut requests = handler.bus.consume(requests).await.expect("subscribed");
    let requester = Requester::new(process.bus.clone(), reply_address("caller", "one"));
    let request = Request {
        key: key("requests"),
        envelope: text_message("?").with_correlation_id("the-call"),
        timeout: Duration::from_secs(60),
        grace: Duration::ZERO,
        on_interim: None,
        retry: true,
        abandoned: None,
    };
    let handling = async {
        assert_eq!(ack_next(&mut requests).await, "?");
        // Confirms arrive in order: once this message is confirmed, the request is too.
        process.publish_until_confirmed("requests", "after").await;
        assert_eq!(ack_next(&mut requests).await, "after");
        for _ in 0..3 {
            let connections = proxy.connections();
            proxy.cut_all();
            within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
            process.wait_until_ready("a cut").await;
        }
        assert_eq!(requester.stats().retries(), 0);
        handler.reply_to_retry(&mut requests).await
    };
    let (reply, retry) = tokio::join!(requester.request(request), handling);
    reply.expect("a reply");
    assert_eq!((retry.attempt, requester.stats().retries()), (2, 1));
}

/// The client library never completes an operation that starts while the connection closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_during_a_cut_does_not_wait_for_its_timeout() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    for cut in 0..30 {
        let text = format!("cut {cut}");
        let confirmed = timeout(BACK_WITHIN, async {
            proxy.cut_all();
            while process.publish("jobs", &text, Duration::from_secs(60)).await.is_err() {}
        });
        assert!(confirmed.await.is_ok(), "{text}: not confirmed in time");
        let received = recorder.receives(&text).await;
        assert!(received < BACK_WITHIN, "{text}: received after {received:?}");
    }
}

#[tokio::test]
async fn publish_without_connection_times_out_with_the_reason() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    proxy.refuse();
    proxy.cut_all();
    process.wait_until_interrupted().await;
    // The first attempt to reconnect can be accepted just before the proxy refuses.
    let refused = async {
        loop {
            let start = Instant::now();
            let reason = reason_not_sent(process.publish("jobs", "lost", SHORT).await);
            assert!(start.elapsed() < SHORT * 2);
            if reason.contains("refused") {
                break;
            }
        }
    };
    timeout(BACK_WITHIN, refused).await.expect("the reason of the broker's absence");
    proxy.accept();
    process.wait_until_ready("the broker is reachable").await;
    process.publish_until_confirmed("jobs", "after").await;
    recorder.receives("after").await;
}

#[tokio::test]
async fn publish_waits_for_the_connection() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    proxy.refuse();
    proxy.cut_all();
    process.wait_until_interrupted().await;
    let publish = process.publish("jobs", "patient", PUBLISH_TIMEOUT);
    let accept = async {
        // The publish is waiting by now.
        tokio::task::yield_now().await;
        proxy.accept();
    };
    let (published, ()) = tokio::join!(publish, accept);
    published.expect("sent over the new connection");
    recorder.receives("patient").await;
}

#[tokio::test]
async fn truncated_frame_causes_a_reconnect() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut confirmed = process.publish_all_until_confirmed("jobs", "before", 3).await;
    for side in [Direction::ToBroker, Direction::ToClient] {
        let connections = proxy.connections();
        proxy.truncate_next_chunk(side);
        match process.publish("jobs", "halved", PUBLISH_TIMEOUT).await {
            // A truncated confirm leaves the outcome open; a truncated message may be resent.
            Ok(()) => confirmed.push("halved".to_owned()),
            Err(PublishError::Unconfirmed { .. } | PublishError::Disconnected { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
        process.wait_until_ready("a truncated frame").await;
    }
    confirmed.extend(process.publish_all_until_confirmed("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn publish_on_a_stalled_network_times_out() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut confirmed = process.publish_all_until_confirmed("jobs", "before", 3).await;
    proxy.stall();
    let silent = process.publish("jobs", "silent", SHORT).await;
    assert!(matches!(silent, Err(PublishError::Unconfirmed { .. })), "{silent:?}");
    proxy.resume();
    // It was sent after all, which `Unconfirmed` leaves open.
    confirmed.push("silent".to_owned());
    confirmed.extend(process.publish_all_until_confirmed("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn stalled_connection_is_closed_after_two_heartbeats() {
    let proxy = FaultProxy::start(&test_broker_url()).await;
    let process = TestProcess::connect(&format!("{}?heartbeat=1", proxy.url())).await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut confirmed = process.publish_all_until_confirmed("jobs", "before", 3).await;
    proxy.stall();
    process.wait_until_interrupted().await;
    proxy.cut_all();
    proxy.resume();
    process.wait_until_ready("the stall").await;
    confirmed.extend(process.publish_all_until_confirmed("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn slow_network_causes_no_reconnect() {
    let (proxy, process) = process_behind_proxy().await;
    let mut recorder = process.start_recorder("jobs").await;
    proxy.delay(Duration::from_millis(50));
    process.publish("jobs", "slow", PUBLISH_TIMEOUT).await.expect("confirmed");
    recorder.receives("slow").await;
    assert_eq!(proxy.connections(), 1);
}

/// Covers callers that poll in a `select!`, which drops the wait each time.
#[tokio::test]
async fn consumer_resubscribes_despite_dropped_waits() {
    let (proxy, process) = process_behind_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    proxy.cut_all();
    process.publish_until_confirmed("jobs", "after").await;
    let delivery = timeout(BACK_WITHIN, async {
        loop {
            if let Ok(delivery) = timeout(Duration::from_millis(1), consumer.next()).await {
                break delivery;
            }
        }
    });
    let delivery = delivery.await.expect("in time").expect("the consumer is alive");
    assert_eq!(rockbot_testkit::fixture::text_of(&delivery), "after");
}

#[tokio::test]
async fn delivery_unsettled_at_a_cut_is_redelivered() {
    let (proxy, process) = process_behind_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    process.publish_until_confirmed("jobs", "held").await;
    let held = within_timeout("a delivery", consumer.next()).await.expect("alive");
    proxy.cut_all();
    let redelivered = within_timeout("the redelivery", consumer.next()).await.expect("alive");
    assert!(redelivered.is_redelivered());
    held.settle(rockbot_bus::Settlement::Ack).await.expect_err("its channel is closed");
    redelivered.settle(rockbot_bus::Settlement::Ack).await.expect("settled");
    process.publish_until_confirmed("jobs", "next").await;
    assert_eq!(ack_next(&mut consumer).await, "next");
}

#[tokio::test]
async fn close_while_disconnected_ends_consumers_and_publishes() {
    let (proxy, process) = process_behind_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    proxy.refuse();
    proxy.cut_all();
    process.wait_until_interrupted().await;
    let publication = rockbot_bus::Publication::mandatory(key("jobs"), text_message("never"));
    let (published, next, ()) = timeout(SHORT, async {
        tokio::join!(process.bus.publish(publication), consumer.next(), process.bus.close())
    })
    .await
    .expect("all complete");
    assert!(matches!(published, Err(PublishError::Closed)), "{published:?}");
    assert!(next.is_none());
}
