//! What a source file looks like.

use super::{assert_kept, files};

const LONGEST: usize = 600;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "helpers", "helper", "common", "manager", "misc", "stuff"];
/// Put together here, so that this file does not break its own rule.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("#[ign", "ore"),
];
const BLOCKING_SLEEP: &str = concat!("thread::sl", "eep(");
const ASYNC_SLEEP: &str = concat!("time::sl", "eep(");
/// Under the paused clock a sleep is a point in virtual time and takes none.
const PAUSED_CLOCK: &str = "start_paused = true";

#[test]
fn long_file_gives_reason_in_first_line() {
    let broken = files("rs").into_iter().filter(|(_, text)| {
        let first = text.lines().next().unwrap_or_default();
        text.lines().count() > LONGEST && !first.contains("one thing")
    });
    assert_kept(
        &broken
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
    let broken = files("rs").into_iter().filter(|(path, _)| {
        let parts = path.trim_end_matches(".rs").split('/');
        parts.into_iter().any(|part| EMPTY_NAMES.contains(&part))
    });
    assert_kept(
        &broken
            .map(|(path, _)| format!("{path}: name it by the one concept it holds"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_unfinished_or_ignored_code() {
    let mut broken = Vec::new();
    for (path, text) in files("rs") {
        for (number, line) in numbered(&text) {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                broken.push(format!("{path}:{number}: finish it or take it out ({word})"));
            }
        }
    }
    assert_kept(&broken);
}

#[test]
fn tests_do_not_sleep() {
    let mut broken = Vec::new();
    for (path, text) in files("rs") {
        let whole = path.contains("/tests/");
        let start = text.lines().position(|line| line.trim() == "#[cfg(test)]");
        let skipped = if whole { 0 } else { start.unwrap_or(usize::MAX) };
        for (number, line) in numbered(&text).skip(skipped) {
            let waits = line.contains(ASYNC_SLEEP) && !text.contains(PAUSED_CLOCK);
            if waits || line.contains(BLOCKING_SLEEP) {
                broken.push(format!(
                    "{path}:{number}: wait for the event, or run the test with {PAUSED_CLOCK}"
                ));
            }
        }
    }
    assert_kept(&broken);
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}
