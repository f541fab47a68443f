//! How long a process is without the broker: from the fault, or from its end, until a message that
//! is published then arrives again. Publisher and consumer are one process behind one proxy.
//!
//! `cargo xtask bench recovery` provides the broker and runs it.

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

const TIMES: usize = 20;
const AWAY: Duration = Duration::from_secs(2);

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let proxy = FaultProxy::start(&test_broker_url()).await;
        let config = RabbitConfig::new(proxy.url(), "recovery").with_namespace(fresh_namespace());
        let bus = RabbitBus::start(&config).expect("a usable URL");
        let subscription = Subscription::new(work_queue("jobs"), 16);
        let mut consumer = bus.consume(subscription).await.expect("subscribed");
        println!("| fault, {TIMES} times | median | worst |");
        println!("|---|---:|---:|");
        let mut cuts = Vec::new();
        for number in 0..TIMES {
            let began = Instant::now();
            proxy.cut_all();
            arrives(&bus, &mut consumer, &format!("cut {number}")).await;
            cuts.push(began.elapsed());
        }
        report("the connection is cut", cuts);
        let mut returns = Vec::new();
        for number in 0..TIMES {
            proxy.refuse();
            proxy.cut_all();
            sleep(AWAY).await;
            let began = Instant::now();
            proxy.accept();
            arrives(&bus, &mut consumer, &format!("return {number}")).await;
            returns.push(began.elapsed());
        }
        report("the broker is away for 2 s, from its return", returns);
        bus.close().await;
    });
}

/// Publishes until it is confirmed, and waits until it is received.
async fn arrives(bus: &RabbitBus, consumer: &mut Consumer, text: &str) {
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
            let delivery = consumer.next().await.expect("the consumer is alive");
            let arrived = text_of(&delivery) == text;
            // One that is lost comes again, and is passed over then.
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
