//! Rules for source files.

use super::{assert_no_violations, files};

const MAX_LINES: usize = 600;
/// File names without a meaning.
const GENERIC_NAMES: [&str; 8] =
    ["utils", "util", "helpers", "helper", "common", "manager", "misc", "stuff"];
/// Concatenated, so that this file does not violate its own rule.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("#[ign", "ore"),
];
const BLOCKING_SLEEP: &str = concat!("thread::sl", "eep(");
const ASYNC_SLEEP: &str = concat!("time::sl", "eep(");
/// With a paused clock a sleep only advances virtual time.
const PAUSED_CLOCK: &str = "start_paused = true";

#[test]
fn long_file_gives_reason_in_first_line() {
    let violations = files("rs").into_iter().filter(|(_, text)| {
        let first = text.lines().next().unwrap_or_default();
        text.lines().count() > MAX_LINES && !first.contains("one thing")
    });
    assert_no_violations(
        &violations
            .map(|(path, text)| {
                let lines = text.lines().count();
                format!(
                    "{path} has {lines} lines: split it by concept, or start it with \
                     `//! … is one thing because …`"
                )
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn file_names_state_a_concept() {
    let violations = files("rs").into_iter().filter(|(path, _)| {
        let parts = path.trim_end_matches(".rs").split('/');
        parts.into_iter().any(|part| GENERIC_NAMES.contains(&part))
    });
    assert_no_violations(
        &violations
            .map(|(path, _)| format!("{path}: name the file by its concept"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_unfinished_or_ignored_code() {
    let mut violations = Vec::new();
    for (path, text) in files("rs") {
        for (number, line) in numbered(&text) {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                violations.push(format!("{path}:{number}: finish or remove this ({word})"));
            }
        }
    }
    assert_no_violations(&violations);
}

#[test]
fn tests_do_not_sleep() {
    let mut violations = Vec::new();
    for (path, text) in files("rs") {
        let is_test_file = path.contains("/tests/");
        let start = text.lines().position(|line| line.trim() == "#[cfg(test)]");
        let skipped = if is_test_file { 0 } else { start.unwrap_or(usize::MAX) };
        for (number, line) in numbered(&text).skip(skipped) {
            let sleeps = line.contains(ASYNC_SLEEP) && !text.contains(PAUSED_CLOCK);
            if sleeps || line.contains(BLOCKING_SLEEP) {
                violations.push(format!(
                    "{path}:{number}: wait for the event, or run the test with {PAUSED_CLOCK}"
                ));
            }
        }
    }
    assert_no_violations(&violations);
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}
