//! Cost of each guarantee: calls with guarantees enabled one by one, compared with an exchange on the
//! plain AMQP client that has the guarantees of the bus. All variants alternate in one run.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Assurance, Bus, BusReport, ConsumeError, Consumer, Publication, PublishError, Settling,
    Subscription,
};
use rockbot_contracts::{InstanceId, QueueKind, QueueName};
use rockbot_store::{Clock, StoreUrl};
use rockbot_tool_rpc::{CallJournal, JournalOptions};

use crate::{
    child::Child,
    fresh,
    measure::{self, Sample, median},
    raw, rockbot,
};

/// Steps, each with the guarantees of the earlier ones.
pub const STEPS: [&str; 6] =
    ["unguarded", "confirms", "quorum", "late-ack", "journal-sqlite", "journal-postgres"];

const LABELS: [&str; 6] = [
    "none",
    "+ publisher confirms",
    "+ quorum queue",
    "+ ack after the confirmed reply: the safe mode",
    "+ journal on SQLite",
    "the same with the journal on PostgreSQL",
];

const IN_FLIGHT: [usize; 2] = [1, 256];

fn level(step: &str) -> usize {
    STEPS.iter().position(|known| *known == step).expect("a step")
}

/// A bus with fewer guarantees.
pub struct Relaxed {
    bus: Arc<dyn Bus>,
    level: usize,
}

impl Relaxed {
    pub fn wrap(bus: Arc<dyn Bus>, step: &str) -> Arc<dyn Bus> {
        Arc::new(Self { bus, level: level(step) })
    }
}

impl Bus for Relaxed {
    fn publish(&self, mut publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        if self.level < level("confirms") {
            publication.assurance = Assurance::Sent;
            publication.mandatory = false;
        }
        self.bus.publish(publication)
    }

    fn consume(
        &self,
        mut subscription: Subscription,
    ) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        if subscription.queue.kind == QueueKind::Work {
            if self.level < level("quorum") {
                subscription.queue.kind = QueueKind::Reply;
            }
            if self.level < level("late-ack") {
                subscription.settling = Settling::OnReceipt;
            }
        }
        self.bus.consume(subscription)
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

/// Starts the journal of a step, if it has one.
pub async fn journal(
    step: &str,
    namespace: &str,
    instance: &InstanceId,
) -> Option<Arc<CallJournal>> {
    let url = match step {
        "journal-sqlite" => {
            let folder = std::env::var("ROCKBOT_BENCH_FOLDER").expect("run `cargo xtask bench`");
            StoreUrl::Sqlite(format!("{folder}/{namespace}.db").into())
        }
        "journal-postgres" => {
            let url = std::env::var("ROCKBOT_TEST_POSTGRES_URL").expect("run `cargo xtask bench`");
            StoreUrl::parse(&url.into()).expect("a URL of a store")
        }
        _ => return None,
    };
    let store = rockbot_store_sql::connect(&url, Clock::System).await.expect("a store");
    let options = JournalOptions { shared: true, ..JournalOptions::default() };
    Some(CallJournal::start(store, instance, options))
}

/// Compares all steps and the plain client, in alternating rounds.
pub async fn compare(rounds: usize, span: Duration) {
    let mut handlers = Vec::new();
    let mut agents = Vec::new();
    for step in STEPS {
        let namespace = fresh(step);
        handlers.push(Child::start(&["guarded-handler", &namespace, step]));
        agents.push(rockbot::Agent::relaxed(&namespace, step).await);
    }
    let raw = fresh("raw");
    handlers.push(Child::start(&["raw-server", &raw]));
    let client = raw::Client::connect(&raw).await;
    println!("| in flight | guarantees | calls/s | p50 | to none | to the plain client |");
    println!("|---:|---|---:|---:|---:|---:|");
    for in_flight in IN_FLIGHT {
        let mut samples: Vec<Vec<Sample>> = Vec::new();
        // The first round warms up.
        for round in 0..=rounds {
            let mut round_samples = vec![None; STEPS.len() + 1];
            // Each round starts with another variant, so that none always follows the same one.
            for turn in 0..round_samples.len() {
                let which = (turn + round) % round_samples.len();
                round_samples[which] = Some(match agents.get(which) {
                    Some(agent) => measure::load(in_flight, span, || agent.call()).await,
                    None => measure::load(in_flight, span, || client.call()).await,
                });
            }
            if round > 0 {
                samples
                    .push(round_samples.into_iter().map(|sample| sample.expect("ran")).collect());
            }
        }
        let median_of =
            |pick: &dyn Fn(&[Sample]) -> f64| median(samples.iter().map(|s| pick(s)).collect());
        let row = |name: &str, which: usize| {
            println!(
                "| {in_flight} | {name} | {:.0} | {:.2} ms | {:.2} | {:.2} |",
                median_of(&|s| s[which].per_second),
                median_of(&|s| s[which].p50_ms),
                median_of(&|s| s[which].per_second / s[0].per_second),
                median_of(&|s| s[which].per_second / s[STEPS.len()].per_second),
            );
        };
        for (which, name) in LABELS.iter().enumerate() {
            row(name, which);
        }
        row("the plain client in the safe mode", STEPS.len());
    }
}
