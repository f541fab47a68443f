//! Command lines in the documents of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without documents of the repository.
const IGNORED: [&str; 4] = [".git", ".local", "node_modules", "target"];
/// Words that stand for others.
const PLACEHOLDERS: [&str; 2] = ["…", "ARGUMENTS"];

/// A command line in a document.
#[derive(Debug, PartialEq, Eq)]
pub struct DocumentedCommand {
    /// The document and the line.
    pub place: String,
    /// The words after the program.
    pub words: Vec<String>,
}

/// Returns the command lines of `programs` in code blocks and code spans of Markdown files below `root`, and in
/// the notes of the chart, without words such as `…`, which stand for others.
///
/// # Panics
/// When a document cannot be read.
#[must_use]
pub fn in_documents(root: &Path, programs: &[&str]) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    for path in documents(root) {
        let text = fs::read_to_string(&path).expect("a document is UTF-8");
        let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.extend(in_markdown(&place, &text, programs));
        } else {
            found.extend(in_lines(&place, &text, programs));
        }
    }
    found
}

/// Returns the command lines at the beginning of lines of a text.
#[must_use]
pub fn in_lines(place: &str, text: &str, programs: &[&str]) -> Vec<DocumentedCommand> {
    let lines = joined(text.lines().enumerate()).into_iter();
    lines.filter_map(|(index, line)| command(place, index, &line, programs)).collect()
}

fn in_markdown(place: &str, text: &str, programs: &[&str]) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    let mut in_block = false;
    let mut block = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            block.push((index, line));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(|span| command(place, index, span, programs)));
        }
    }
    let lines = joined(block.into_iter()).into_iter();
    found.extend(lines.filter_map(|(index, line)| command(place, index, &line, programs)));
    found
}

/// Joins lines that end with a backslash with the next ones.
fn joined<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in lines {
        let (part, ends) = line.strip_suffix('\\').map_or((line, true), |part| (part, false));
        match joined.last_mut().filter(|_| continues) {
            Some((_, whole)) => whole.push_str(part.trim_start()),
            None => joined.push((index, part.to_owned())),
        }
        continues = !ends;
    }
    joined
}

fn command(place: &str, index: usize, line: &str, programs: &[&str]) -> Option<DocumentedCommand> {
    let line = without_assignments(line.trim_start());
    let rest = programs.iter().find_map(|program| {
        line.strip_prefix(program).filter(|rest| rest.is_empty() || rest.starts_with(' '))
    })?;
    let words = words(rest.trim_start());
    Some(DocumentedCommand { place: format!("{place}:{}", index + 1), words })
}

/// Returns a command line without the variables before it.
fn without_assignments(mut line: &str) -> &str {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    while let Some((word, rest)) = line.split_once(' ')
        && word.split_once('=').is_some_and(|(name, _)| is_name(name))
    {
        line = rest;
    }
    line
}

/// Splits a command line at spaces, like a shell. It ends at a comment, at an operator, and at two spaces in a
/// row, after which a description follows.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters =
        line.replace("{{", "\u{1}").chars().collect::<Vec<_>>().into_iter().peekable();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                if characters.peek() == Some(&' ') {
                    break;
                }
            }
            (None, '|' | '<' | '>' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            // A value of a template.
            (None, '\u{1}') => {
                while characters.next().is_some_and(|c| c != '}') {}
                characters.next();
                word.get_or_insert_default().push_str("value");
            }
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words.retain(|word| !PLACEHOLDERS.contains(&word.as_str()));
    words
}

/// Returns the Markdown files and the notes of the chart, sorted by path.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a readable folder");
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !IGNORED.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && (name.ends_with(".md") || name == "NOTES.txt") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Vec<String>> {
        let programs = ["rockbot", "docker compose run cli"];
        in_markdown("a.md", text, &programs).into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn commands_are_found_in_blocks_and_spans() {
        let text = "Use `rockbot doctor` or `rockbots`.\n```\nKEY=a rockbot call 'a b' \\\n  --json  # no\n\
                    kubectl -n rockbot get\ndocker compose run cli … watch | head\n```\nrockbot is a name\n";
        let expected: [&[&str]; 3] = [&["doctor"], &["call", "a b", "--json"], &["watch"]];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn quotes_templates_and_descriptions_are_understood() {
        let text = "```\nrockbot --bus amqp://{{ .a }}.cli:b@c list\nrockbot chat \"a \\\"b\\\"\"\n\
                    rockbot dlq list   the queues\n```\n";
        let expected: [&[&str]; 3] =
            [&["--bus", "amqp://value.cli:b@c", "list"], &["chat", "a \"b\""], &["dlq", "list"]];
        assert_eq!(found(text), expected);
    }
}
