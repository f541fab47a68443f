//! Samples of output in the documents of the repository, and their comparison with the output of programs.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Units of times. The unit of a time depends on its length.
const TIME_UNITS: [&str; 3] = ["µs", "ms", "s"];
/// Length from which on hexadecimal digits are an id.
const ID_DIGITS: usize = 16;
/// Stands for any text in a sample.
const ELLIPSIS: char = '…';

/// A code block of a Markdown document.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeBlock {
    /// The name of its language; empty without one.
    pub language: String,
    /// Its text, without the indentation of its fence.
    pub text: String,
}

/// Returns the code blocks of a Markdown document.
#[must_use]
pub fn code_blocks(markdown: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, CodeBlock)> = None;
    for line in markdown.lines() {
        let indentation = line.len() - line.trim_start().len();
        match (&mut open, line.trim().strip_prefix("```")) {
            (None, Some(language)) => {
                let block = CodeBlock { language: language.to_owned(), text: String::new() };
                open = Some((indentation, block));
            }
            (Some((indented, block)), None) => {
                let _ = writeln!(block.text, "{}", &line[indentation.min(*indented)..]);
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (None, None) => {}
        }
    }
    blocks
}

/// Returns the code block of a document whose text starts with `start`.
///
/// # Panics
/// When the document has no such block, or several.
#[must_use]
#[track_caller]
pub fn sample(document: &str, start: &str) -> String {
    let markdown = fs::read_to_string(root().join(document)).expect("a document");
    let mut blocks = code_blocks(&markdown);
    blocks.retain(|block| block.text.starts_with(start));
    let [block] = &blocks[..] else {
        panic!("{document} has {} blocks that start with {start:?}", blocks.len());
    };
    block.text.clone()
}

/// Checks output against a sample. In the sample, `…` stands for any text. Numbers, ids, units of times and widths of
/// columns may differ.
///
/// # Panics
/// When the output differs.
#[track_caller]
pub fn assert_output(sample: &str, output: &str) {
    let (sample, output) = (normalized(sample), normalized(output));
    assert!(
        matches(&sample, &output),
        "the document differs from the output; correct the document\n--- document\n{sample}\n--- output\n{output}"
    );
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns whether the parts of a sample between its ellipses follow one another in the output.
fn matches(sample: &str, output: &str) -> bool {
    let mut parts = sample.split(ELLIPSIS);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = output.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

fn normalized(text: &str) -> String {
    text.trim().lines().map(normalized_line).collect::<Vec<_>>().join("\n")
}

/// Replaces what differs between runs: `N` is a number, `ID` an id and `TIME` a unit after a number. Columns have two
/// spaces between them.
fn normalized_line(line: &str) -> String {
    let line = line.trim_end();
    let indentation = line.len() - line.trim_start().len();
    let columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
    let columns = columns.map(|column| {
        let mut words: Vec<_> = column.split(' ').map(normalized_word).collect();
        for index in 1..words.len() {
            if words[index - 1] == "N" && TIME_UNITS.contains(&words[index].as_str()) {
                words[index] = "TIME".to_owned();
            }
        }
        words.join(" ")
    });
    " ".repeat(indentation) + &columns.collect::<Vec<_>>().join("  ")
}

fn normalized_word(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let number = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        // A decimal may have as many places as an id has digits.
        let length = if digits >= ID_DIGITS && !text.ends_with("N.") {
            text.push_str("ID");
            digits
        } else if number > 0 {
            // The parts of a version, an address or a decimal are one number.
            if text.ends_with("N.") {
                text.pop();
            } else {
                text.push('N');
            }
            number
        } else {
            text.push(first);
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_language_and_no_indentation() {
        let text = "a\n```\nb\n  c\n```\n- d\n\n  ```json\n  e\n  ```\n";
        let expected = [("", "b\n  c\n"), ("json", "e\n")].map(|(language, text)| CodeBlock {
            language: language.to_owned(),
            text: text.to_owned(),
        });
        assert_eq!(code_blocks(text), expected);
    }

    #[test]
    fn numbers_ids_times_and_widths_may_differ() {
        let sample =
            "RabbitMQ 3.10.8 in 660 µs\nQUEUE    WAITING\na/01a2102007947578aacb9106f096fda9  0\n";
        assert_output(
            sample,
            "RabbitMQ 4.1 in 1.574199999999 ms\nQUEUE  WAITING\na/11a2102007947578aacb9106f096fdaa  12",
        );
    }

    #[test]
    fn ellipsis_stands_for_any_text() {
        for (sample, output, expected) in [
            ("a\n…\nd\n", "a\nb\nc\nd", true),
            ("a … c", "a b c", true),
            ("a\n…", "a\nb", true),
            ("a … c", "a b d", false),
            ("a", "a b", false),
            ("a\nb", "a\nc", false),
        ] {
            assert_eq!(matches(&normalized(sample), &normalized(output)), expected, "{sample}");
        }
    }
}
