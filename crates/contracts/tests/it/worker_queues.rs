//! The arguments of the work queue in the documentation for workers and in the example workers. The broker
//! refuses a worker that declares the queue of its pool with others.

use std::collections::BTreeMap;

use rockbot_contracts::{HandlerPool, PoolName, QueueSpec, shape::Argument};

const DOCUMENT: &str = include_str!("../../../../docs/workers.md");
const PYTHON: &str = include_str!("../../../../examples/workers/python/wire.py");
const TYPESCRIPT: &str = include_str!("../../../../examples/workers/typescript/wire.ts");

/// Returns the arguments that handlers declare the queue of the pool `POOL` with.
fn declared(namespace: &str, pool: &str) -> BTreeMap<String, String> {
    let key = HandlerPool::Named(PoolName::new("pool").unwrap()).invoke_key();
    let arguments = QueueSpec::work(&key).arguments(namespace).into_iter();
    arguments
        .map(|(name, value)| {
            let value = match value {
                Argument::Text(text) => {
                    text.replace("invoke.pool.pool", &format!("invoke.pool.{pool}"))
                }
                Argument::Number(number) => number.to_string(),
            };
            (name.to_owned(), value)
        })
        .collect()
}

/// Returns the part of `text` between `start` and the next `end`.
#[track_caller]
fn section<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, after) = text.split_once(start).unwrap_or_else(|| panic!("no {start:?}"));
    after.split_once(end).unwrap_or_else(|| panic!("no {end:?} after {start:?}")).0
}

/// Returns the arguments in the source of an example worker, with numbers evaluated.
fn in_source(text: &str) -> BTreeMap<String, String> {
    let entries = text.split([',', '\n']).map(str::trim);
    entries
        .filter_map(|entry| entry.strip_prefix("\"x-")?.split_once("\": "))
        .map(|(name, value)| {
            let value = number(value)
                .map_or_else(|| value.trim_matches('"').to_owned(), |number| number.to_string());
            (format!("x-{name}"), value)
        })
        .collect()
}

/// Evaluates a number such as `100_000`, `256 << 20` or `256 * 1024 * 1024`.
fn number(expression: &str) -> Option<u64> {
    if let Some((base, shift)) = expression.split_once(" << ") {
        return Some(number(base)? << number(shift)?);
    }
    expression.split(" * ").map(|factor| factor.replace('_', "").parse::<u64>().ok()).product()
}

#[test]
fn documented_work_queue_is_that_of_handlers() {
    let table = section(DOCUMENT, "### Arguments of the work queue", "\n## ");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `x-"));
    let rows = rows.map(|row| {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        (format!("x-{}", cells.next().unwrap()), cells.next().unwrap())
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), declared("<ns>", "<pool>"));
}

#[test]
fn example_workers_declare_work_queue_of_handlers() {
    let mut expected = declared("ns", "pool");
    for (name, text, exchange, queue) in [
        ("python", section(PYTHON, "WORK_QUEUE = {", "}"), "DEAD_LETTERS", "QUEUE"),
        ("typescript", section(TYPESCRIPT, "workQueue", "};"), "deadLetters", "queue"),
    ] {
        // Names of variables, which docs/workers.md gives the values of.
        expected.insert("x-dead-letter-exchange".to_owned(), exchange.to_owned());
        expected.insert("x-dead-letter-routing-key".to_owned(), queue.to_owned());
        assert_eq!(in_source(text), expected, "{name}");
    }
}
