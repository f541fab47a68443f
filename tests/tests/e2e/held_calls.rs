//! Calls that are held longer than the broker lets a delivery be held.

use std::{fs, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_testkit::{
    broker::PrivateBroker,
    fixture::{TEST_TIMEOUT, key, next_delivery, text_message, within_timeout, work_queue},
};
use rustix::process::Signal;
use serde_json::json;

use crate::{caller::Caller, fleet::Fleet};

/// Settings with which a broker takes deliveries back after a second.
const SETTINGS: [(&str, &str); 2] =
    [("consumer_timeout", "1000"), ("channel_tick_interval", "500")];
/// The least version whose consumers limit by themselves how long a delivery may be held.
const ARGUMENT_SINCE: (u32, u32) = (4, 3);
/// Time after which the broker takes back the deliveries of another consumer, by which the test measures
/// how long the call is held.
const SHORT_TIME: Duration = Duration::from_secs(1);
/// Number of its deliveries.
const TIMES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn call_held_beyond_the_brokers_limit_is_answered_without_a_dead_letter() {
    let fleet = Fleet::new();
    let broker = tokio::task::spawn_blocking(|| {
        let broker = PrivateBroker::start()?;
        for (name, value) in SETTINGS {
            broker.ctl(&["eval", &format!("application:set_env(rabbit, {name}, {value}).")])?;
        }
        let version = broker.version()?;
        anyhow::Ok((broker, version))
    });
    let (broker, version) = broker.await.expect("no panic").expect("a broker");
    let url = broker.amqp_url();
    let mut handler = fleet.handler_with("handler-1", &[("ROCKBOT_BUS__URL", url.as_str())]).await;
    let config = RabbitConfig::new(&url, "an e2e test").with_namespace(&fleet.namespace);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(TEST_TIMEOUT).await.expect("connected");
    let bus: Arc<dyn Bus> = Arc::new(bus);
    let other = Subscription::new(work_queue("other"), 1).with_settle_timeout(SHORT_TIME);
    let mut other = bus.consume(other).await.expect("subscribed");

    let caller = Caller::new(bus.clone(), Duration::from_secs(55));
    let command = "echo ran >> lines; until [ -e gate ]; do sleep 0.05; done; echo an answer";
    // By default, a command is stopped after 30 s.
    let arguments = json!({"command": command, "timeout_seconds": 120});
    let held = tokio::spawn({
        let caller = caller.clone();
        async move { caller.call("bash", arguments).await }
    });
    fleet.wait_for_line("lines").await;
    let marker = Publication::mandatory(key("other"), text_message("taken back"));
    bus.publish(marker).await.expect("published");
    let mut taken_back = Vec::new();
    for time in 0..TIMES {
        let delivery = next_delivery(&mut other).await;
        assert_eq!(delivery.is_redelivered(), time > 0);
        taken_back.push(delivery);
    }
    if version < ARGUMENT_SINCE {
        handler.expect_log("consumer resubscribed queue=\"tool.invoke\"").await;
    } else {
        assert!(!handler.log().contains("consumer resubscribed"), "{}", handler.log());
    }
    fleet.write("gate", "");
    let result = within_timeout("the answer", held).await.expect("no panic").expect("a result");
    assert_eq!(result.to_text().lines().next(), Some("an answer"), "{result:?}");
    // A delivery whose ack was lost at the end of a handler is settled by another one.
    let mut others = ["handler-2", "handler-3", "handler-4"].into_iter();
    loop {
        fleet.wait_until_delivered(&bus).await;
        handler.send(Signal::TERM);
        handler.wait().await.assert_code(0);
        let (waiting, dead) = fleet.waiting_and_dead(&bus).await;
        assert_eq!(dead, 0, "a dead letter of a call that was answered");
        if waiting == 0 {
            break;
        }
        let other = others.next().expect("a handler that settles the call");
        handler = fleet.handler_with(other, &[("ROCKBOT_BUS__URL", url.as_str())]).await;
    }
    assert_eq!(fs::read_to_string(fleet.path("lines")).expect("read"), "ran\n");
    bus.close().await;
    tokio::task::spawn_blocking(|| broker.stop()).await.expect("no panic");
}
