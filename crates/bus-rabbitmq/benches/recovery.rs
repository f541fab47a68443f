//! Recovery time: from a fault, or from its end, until a message that is published then is received.
//! Publisher and consumer are one process behind a proxy.
//!
//! `cargo xtask bench recovery` provides the broker and runs the benchmark.

#![allow(missing_docs, unreachable_pub, reason = "a program")]
#![allow(clippy::expect_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "its results go to standard output")]

use std::time::Duration;

use rockbot_bus::{Bus, Consumer, Publication, Settlement, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_testkit::{
    FaultProxy,
    fixture::{
        fresh_namespace, key, test_broker_url, text_message, text_of, within_timeout, work_queue,
    },
};
use tokio::time::{Instant, sleep};

const ROUNDS: usize = 20;
const OUTAGE: Duration = Duration::from_secs(2);

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let proxy = FaultProxy::start(&test_broker_url()).await;
        let config = RabbitConfig::new(proxy.url(), "recovery").with_namespace(fresh_namespace());
        let bus = RabbitBus::start(&config).expect("a usable URL");
        let subscription = Subscription::new(work_queue("jobs"), 16);
        let mut consumer = bus.consume(subscription).await.expect("subscribed");
        println!("| fault, {ROUNDS} rounds | median | worst |");
        println!("|---|---:|---:|");
        let mut cuts = Vec::new();
        for number in 0..ROUNDS {
            let start = Instant::now();
            proxy.cut_all();
            round_trip(&bus, &mut consumer, &format!("cut {number}")).await;
            cuts.push(start.elapsed());
        }
        report("the connection is cut", cuts);
        let mut outages = Vec::new();
        for number in 0..ROUNDS {
            proxy.refuse();
            proxy.cut_all();
            sleep(OUTAGE).await;
            let start = Instant::now();
            proxy.accept();
            round_trip(&bus, &mut consumer, &format!("return {number}")).await;
            outages.push(start.elapsed());
        }
        report("the broker is down for 2 s, from its return", outages);
        bus.close().await;
    });
}

/// Publishes a message until confirmed, and waits until it is received.
async fn round_trip(bus: &RabbitBus, consumer: &mut Consumer, text: &str) {
    let published = async {
        loop {
            let publication = Publication::mandatory(key("jobs"), text_message(text));
            if bus.publish(publication).await.is_ok() {
                break;
            }
        }
    };
    let received = async {
        loop {
            let delivery = consumer.next().await.expect("a delivery");
            let arrived = text_of(&delivery) == text;
            // After a lost ack the message is redelivered, and ignored.
            let _ = delivery.settle(Settlement::Ack).await;
            if arrived {
                break;
            }
        }
    };
    within_timeout("the message arrives", async { tokio::join!(published, received) }).await;
}

fn report(fault: &str, mut times: Vec<Duration>) {
    times.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("| {fault} | {:.0} ms | {:.0} ms |", millis(median), millis(worst));
}
