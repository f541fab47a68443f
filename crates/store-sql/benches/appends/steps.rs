//! The records of turns, each a response of a model and the result of a tool: to a log of each turn, or with one insert
//! for each.
//!
//! `cargo xtask bench turns` runs it beside other programs that promise durability.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rockbot_store::LogName;
use rockbot_testkit::turn_benchmark::{self, STEPS};

use crate::{Append, Database};

/// Records of a turn.
const RECORDS: u64 = 2 * STEPS as u64;

/// Measures the ways to record, by the names of the variants: `log-sqlite`, `inserts-postgresql`.
pub(crate) async fn serve(databases: Vec<Database>) {
    let mut variants = BTreeMap::new();
    for Database { name, log, inserts } in databases {
        let name = name.to_lowercase();
        variants.insert(format!("log-{name}"), log);
        variants.insert(format!("inserts-{name}"), inserts);
    }
    let turns = Arc::new(AtomicU64::new(0));
    turn_benchmark::serve(|variant| {
        let (append, turns) = (variants[variant].clone(), turns.clone());
        move || record_turn(append.clone(), turns.fetch_add(1, Ordering::Relaxed))
    })
    .await;
}

async fn record_turn(append: Append, turn: u64) {
    let name = LogName::new(["turn", &turn.to_string()]).expect("a name");
    for number in 1..=RECORDS {
        append(name.clone(), number).await;
    }
}
