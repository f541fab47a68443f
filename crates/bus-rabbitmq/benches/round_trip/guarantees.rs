//! What each guarantee costs: the same call with one after the other switched on, all alternated in
//! one run, and beside them the exchange by hand with the same guarantees as the bus.

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

/// The steps, each with everything of those before it.
pub const STEPS: [&str; 6] =
    ["unguarded", "confirms", "quorum", "late-ack", "journal-sqlite", "journal-postgres"];

const SHOWN: [&str; 6] = [
    "none",
    "+ publisher confirms",
    "+ quorum queue",
    "+ ack after the confirmed answer: the safe mode",
    "+ journal on SQLite",
    "the same with the journal on PostgreSQL",
];

const IN_FLIGHT: [usize; 2] = [1, 256];

fn level(step: &str) -> usize {
    STEPS.iter().position(|known| *known == step).expect("a step")
}

/// A bus without some of its guarantees.
pub struct Loosened {
    bus: Arc<dyn Bus>,
    level: usize,
}

impl Loosened {
    pub fn over(bus: Arc<dyn Bus>, step: &str) -> Arc<dyn Bus> {
        Arc::new(Self { bus, level: level(step) })
    }
}

impl Bus for Loosened {
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

/// The journal of a step, if it has one.
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

/// Rounds of all steps and of the exchange by hand, alternated.
pub async fn compare(rounds: usize, span: Duration) {
    let mut handlers = Vec::new();
    let mut agents = Vec::new();
    for step in STEPS {
        let namespace = fresh(step);
        handlers.push(Child::start(&["guarded-handler", &namespace, step]));
        agents.push(rockbot::Agent::loosened(&namespace, step).await);
    }
    let theirs = fresh("raw");
    handlers.push(Child::start(&["raw-server", &theirs]));
    let client = raw::Client::connect(&theirs).await;
    println!("| in flight | guarantees | calls/s | p50 | to none | to the client alone |");
    println!("|---:|---|---:|---:|---:|---:|");
    for in_flight in IN_FLIGHT {
        let mut samples: Vec<Vec<Sample>> = Vec::new();
        // The first round warms up.
        for round in 0..=rounds {
            let mut of_round = vec![None; STEPS.len() + 1];
            // Each round begins with another, so that none always follows the same one.
            for turn in 0..of_round.len() {
                let which = (turn + round) % of_round.len();
                of_round[which] = Some(match agents.get(which) {
                    Some(agent) => measure::load(in_flight, span, || agent.call()).await,
                    None => measure::load(in_flight, span, || client.call()).await,
                });
            }
            if round > 0 {
                samples.push(of_round.into_iter().map(|sample| sample.expect("ran")).collect());
            }
        }
        let of =
            |pick: &dyn Fn(&[Sample]) -> f64| median(samples.iter().map(|s| pick(s)).collect());
        let row = |name: &str, which: usize| {
            println!(
                "| {in_flight} | {name} | {:.0} | {:.2} ms | {:.2} | {:.2} |",
                of(&|s| s[which].per_second),
                of(&|s| s[which].p50_ms),
                of(&|s| s[which].per_second / s[0].per_second),
                of(&|s| s[which].per_second / s[STEPS.len()].per_second),
            );
        };
        for (which, name) in SHOWN.iter().enumerate() {
            row(name, which);
        }
        row("the client alone, as the safe mode", STEPS.len());
    }
}
