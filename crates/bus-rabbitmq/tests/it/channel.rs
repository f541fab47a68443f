//! Faults that close a channel but not its connection.

use std::time::Duration;

use rockbot_bus::{Bus, Settlement, Subscription};
use rockbot_testkit::{
    FaultProxy,
    broker::PrivateBroker,
    fixture::{next_delivery, text_of, within_timeout, work_queue},
};
use tokio::time::timeout;

use crate::{
    broker::TestBroker,
    test_process::{BACK_WITHIN, PUBLISH_TIMEOUT, TestProcess},
};

/// The least version whose consumers limit by themselves how long a delivery may be held.
const ARGUMENT_SINCE: (u32, u32) = (4, 3);
/// Time for a delivery that is over soon, as the broker's setting in milliseconds and as a consumer's.
const SHORT_SETTING: &str = "1000";
const SHORT_TIME: Duration = Duration::from_secs(1);
/// Time for a delivery that no test lasts.
const LONG_TIME: Duration = Duration::from_secs(3600);

/// Starts a broker that checks the times of deliveries often. Returns whether its consumers may set these
/// times.
async fn broker_that_checks_times() -> (TestBroker<PrivateBroker>, bool) {
    let broker = TestBroker::start(PrivateBroker::start).await;
    let version = broker.act(|broker| broker.version()).await;
    set(&broker, "channel_tick_interval", "500").await;
    (broker, version >= ARGUMENT_SINCE)
}

async fn set(broker: &TestBroker<PrivateBroker>, name: &str, value: &str) {
    let set = format!("application:set_env(rabbit, {name}, {value}).");
    broker.act(move |broker| broker.ctl(&["eval", &set])).await;
}

/// A broker before 4.3 goes by its setting alone, and takes both deliveries back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_time_of_a_consumer_outlasts_the_setting_of_the_broker() {
    let (broker, has_argument) = broker_that_checks_times().await;
    set(&broker, "consumer_timeout", SHORT_SETTING).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let process = TestProcess::connect(&url).await;
    let subscription = |queue, time| {
        let subscription = Subscription::new(work_queue(queue), 1).with_settle_timeout(time);
        process.bus.consume(subscription)
    };
    let mut long = subscription("long", LONG_TIME).await.expect("subscribed");
    let mut short = subscription("short", SHORT_TIME).await.expect("subscribed");
    process.publish_until_confirmed("long", "held").await;
    let held = next_delivery(&mut long).await;
    process.publish_until_confirmed("short", "taken back").await;
    let mut taken_back = vec![next_delivery(&mut short).await];
    for _ in 0..2 {
        let redelivered = next_delivery(&mut short).await;
        assert!(redelivered.is_redelivered());
        taken_back.push(redelivered);
    }
    if has_argument {
        // Held longer than the two deliveries that were taken back since.
        assert!(held.is_open(), "the delivery was taken back");
        held.settle(Settlement::Ack).await.expect("settled");
    } else {
        let redelivered = next_delivery(&mut long).await;
        assert!(redelivered.is_redelivered() && !held.is_open());
    }
}

/// A consumer that holds a delivery for over 1 s loses its channel, or from RabbitMQ 4.3 on its
/// subscription alone, although the broker's setting is 25 hours there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_survives_a_closed_channel() {
    let (broker, has_argument) = broker_that_checks_times().await;
    if !has_argument {
        set(&broker, "consumer_timeout", SHORT_SETTING).await;
    }
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let proxy = FaultProxy::start(&url).await;
    let process = TestProcess::connect(proxy.url()).await;
    let subscription = Subscription::new(work_queue("slow"), 1).with_settle_timeout(SHORT_TIME);
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
