//! Constructions that documents and sources should avoid, each with a budget that may only shrink.
//!
//! `prose_budget.txt` has a line `COUNT CONSTRUCTION` for each of them. A construction is either a
//! phrase, matched as whole words in any case, or `///` followed by words that must not begin a summary.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::{assert_no_violations, files, root};

/// Variable that lowers every budget to the current count.
const LOWER: &str = "ROCKBOT_LOWER_PROSE_BUDGET";
/// The command that lowers all budgets.
const COMMAND: &str =
    "ROCKBOT_LOWER_PROSE_BUDGET=1 cargo test -p rockbot-tests --test it prose_stays_within_budget";
/// Prefix of constructions at the beginning of rustdoc summaries.
const SUMMARY: &str = "///";

#[test]
fn prose_stays_within_budget() {
    let texts: Vec<String> = files("rs")
        .into_iter()
        .chain(files("md"))
        .filter(|(path, _)| !path.ends_with("workspace_rules/prose.rs"))
        .map(|(_, text)| text.to_lowercase())
        .collect();
    let budgets = budgets();
    let counts: BTreeMap<&str, usize> = budgets
        .keys()
        .map(|construction| {
            let counts = texts.iter().map(|text| count(text, construction));
            (construction.as_str(), counts.sum())
        })
        .collect();
    if std::env::var_os(LOWER).is_some() {
        lower(&budgets, &counts);
        return;
    }
    let above = counts.iter().filter(|(construction, count)| **count > budgets[**construction]);
    assert_no_violations(
        &above
            .map(|(construction, count)| {
                format!(
                    "{count} times `{construction}`, {} are allowed: follow CONTRIBUTING.md \
                     (`{COMMAND}` lowers budgets that are too high)",
                    budgets[*construction]
                )
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn constructions_are_counted_as_whole_words() {
    let text = "whoever asks. a whoeverish ask.\n    /// what it is.\n/// more of what.\n";
    assert_eq!(count(text, "whoever"), 1);
    assert_eq!(count(text, "/// what"), 1, "the second line continues a comment");
    assert_eq!(count("// so\n/// how it is", "/// how"), 1);
    assert_eq!(count("the time-out, time-outs", "time-out"), 1);
    assert_eq!(count("a story, customer-stories, stories", "stories"), 1);
}

/// Counts a construction in a text in lower case.
fn count(text: &str, construction: &str) -> usize {
    match construction.strip_prefix(SUMMARY) {
        Some(start) => {
            let mut previous_is_doc = false;
            let mut counted = 0;
            for line in text.lines().map(str::trim_start) {
                let doc = line.strip_prefix(SUMMARY);
                let matches = doc.is_some_and(|doc| is_word_prefix(doc, start));
                counted += usize::from(matches && !previous_is_doc);
                previous_is_doc = doc.is_some();
            }
            counted
        }
        None => text
            .match_indices(construction)
            .filter(|(index, found)| {
                let before = text[..*index].chars().next_back();
                let after = text[index + found.len()..].chars().next();
                !before.is_some_and(is_word_part) && !after.is_some_and(is_word_part)
            })
            .count(),
    }
}

/// Returns whether a character continues a word. A hyphen does, as in the name `customer-stories`.
fn is_word_part(character: char) -> bool {
    character.is_alphanumeric() || character == '-'
}

fn is_word_prefix(text: &str, start: &str) -> bool {
    text.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn file() -> PathBuf {
    root().join("tests/tests/it/workspace_rules/prose_budget.txt")
}

fn budgets() -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(file()).expect("a readable budget");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (count, construction) = line.split_once(' ').expect("COUNT CONSTRUCTION");
            (construction.trim().to_owned(), count.parse().expect("a count"))
        })
        .collect()
}

/// Lowers every budget to the current count.
fn lower(budgets: &BTreeMap<String, usize>, counts: &BTreeMap<&str, usize>) {
    let mut text = format!("# Written by\n# {COMMAND}\n");
    for (construction, budget) in budgets {
        let count = counts[construction.as_str()].min(*budget);
        writeln!(text, "{count} {construction}").expect("written");
    }
    std::fs::write(file(), text).expect("written");
}
