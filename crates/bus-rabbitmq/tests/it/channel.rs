//! Faults that close a channel but not its connection.

use std::time::Duration;

use rockbot_bus::{Bus, Settlement, Subscription};
use rockbot_testkit::{
    FaultProxy,
    broker::PrivateBroker,
    fixture::{text_of, within_timeout, work_queue},
};
use tokio::time::timeout;

use crate::{
    broker::TestBroker,
    test_process::{BACK_WITHIN, PUBLISH_TIMEOUT, TestProcess},
};

/// A consumer that holds a delivery for over 1 s loses its channel, or from RabbitMQ 4.3 on its
/// subscription alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_survives_a_closed_channel() {
    let broker = TestBroker::start(PrivateBroker::start).await;
    for (name, value) in [("consumer_timeout", "1000"), ("channel_tick_interval", "500")] {
        let set = format!("application:set_env(rabbit, {name}, {value}).");
        broker.act(move |broker| broker.ctl(&["eval", &set])).await;
    }
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let proxy = FaultProxy::start(&url).await;
    let process = TestProcess::connect(proxy.url()).await;
    let subscription =
        Subscription::new(work_queue("slow"), 1).with_settle_timeout(Duration::from_secs(1));
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    let mut others = process.start_recorder("jobs").await;
    process.publish_until_confirmed("slow", "held").await;
    let held = within_timeout("a delivery", consumer.next()).await.expect("alive");
    // The channel is closed meanwhile; the connection and the other consumer stay.
    let redelivered = within_timeout("the redelivery", consumer.next()).await.expect("alive");
    assert_eq!(text_of(&redelivered), "held");
    assert!(redelivered.is_redelivered());
    assert!(redelivered.is_open() && !held.is_open());
    held.settle(Settlement::Ack).await.expect_err("its channel is closed");
    redelivered.settle(Settlement::Ack).await.expect("settled on the new channel");
    process.publish("jobs", "other", PUBLISH_TIMEOUT).await.expect("confirmed");
    others.receives("other").await;
    process.publish_until_confirmed("slow", "after").await;
    let after = timeout(BACK_WITHIN, consumer.next()).await.expect("in time").expect("alive");
    assert_eq!(text_of(&after), "after");
    assert_eq!(proxy.connections(), 1, "the connection was never lost");
}
