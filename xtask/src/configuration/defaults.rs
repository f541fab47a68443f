//! Parser for the commented defaults of a program.
//!
//! It rejects every line that does not have the expected form, so that no key is skipped by mistake:
//!
//! ```toml
//! # Description of the file.
//!
//! # Optional description of the section.
//! [section]
//! # Description of the key.
//! key = "default"
//! # A key without a default is commented out and has an example.
//! # other = 7
//!
//! # A section with an example name is commented out too.
//! # [section.name]
//! # Description of the key.
//! # key = "example"
//! ```

use anyhow::{Context, Result, bail, ensure};

/// The defaults of a program.
#[derive(Debug)]
pub(super) struct Defaults {
    /// Name of the program.
    pub(super) program: String,
    /// The tables in file order.
    pub(super) tables: Vec<Table>,
}

/// A table with its keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Header as in the file, with brackets.
    pub(super) header: String,
    /// The table is commented out.
    pub(super) is_example: bool,
    /// The comment above the header.
    pub(super) description: String,
    pub(super) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Default or example, as in the file.
    pub(super) value: String,
    /// The key is commented out.
    pub(super) is_example: bool,
    /// The comment above the key, or above the directly preceding keys.
    pub(super) description: String,
}

impl Defaults {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// For the first line of an unexpected form, with its number.
    pub(super) fn parse(program: impl Into<String>, text: &str) -> Result<Self> {
        toml::from_str::<toml::Table>(text).context("not valid TOML")?;
        let mut parser = Parser::default();
        for (index, line) in text.lines().enumerate() {
            parser.line(line).with_context(|| format!("line {}: {line}", index + 1))?;
        }
        parser.line("").context("end of file")?;
        ensure!(!parser.tables.is_empty(), "no sections");
        Ok(Self { program: program.into(), tables: parser.tables })
    }

    pub(super) fn keys(&self) -> usize {
        self.tables.iter().map(|table| table.entries.len()).sum()
    }
}

/// State of the parser.
#[derive(Debug, Default)]
struct Parser {
    tables: Vec<Table>,
    /// The lines of the current comment.
    comment: Vec<String>,
    /// The comment about the file has ended.
    is_past_top: bool,
    /// The next keys belong to the last table.
    is_in_table: bool,
    /// The previous line was a key, whose comment applies to the next key too.
    is_after_key: bool,
}

/// Content of a line.
enum Line<'a> {
    Header(&'a str),
    Key(&'a str, &'a str),
    Comment,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<()> {
        ensure!(line.trim_end() == line, "trailing white space");
        if line.is_empty() {
            return self.blank();
        }
        let Some(rest) = line.strip_prefix('#') else {
            self.is_past_top = true;
            return match parse_line(line)? {
                Line::Header(header) => self.header(header, false),
                Line::Key(key, value) => self.key(key, value, false),
                Line::Comment => bail!("neither a section nor a key"),
            };
        };
        if !self.is_past_top {
            return Ok(());
        }
        let text = rest.strip_prefix(' ').context("no space after #")?;
        ensure!(!text.starts_with(' '), "more than one space after #");
        match parse_line(text)? {
            Line::Header(header) => self.header(header, true),
            Line::Key(key, value) => self.key(key, value, true),
            Line::Comment => {
                self.comment.push(text.to_owned());
                self.is_after_key = false;
                Ok(())
            }
        }
    }

    fn blank(&mut self) -> Result<()> {
        ensure!(self.comment.is_empty(), "the preceding comment describes no key or section");
        self.is_past_top = true;
        self.is_after_key = false;
        // A commented key after a blank line could belong to the commented table before, or to none.
        self.is_in_table &= self.tables.last().is_some_and(|table| !table.is_example);
        Ok(())
    }

    fn header(&mut self, header: &str, is_example: bool) -> Result<()> {
        let is_new = self.tables.iter().all(|table| table.header != header);
        ensure!(is_new, "duplicate section {header}");
        self.tables.push(Table {
            header: header.to_owned(),
            is_example,
            description: std::mem::take(&mut self.comment).join(" "),
            entries: Vec::new(),
        });
        (self.is_in_table, self.is_after_key) = (true, false);
        Ok(())
    }

    fn key(&mut self, key: &str, value: &str, is_example: bool) -> Result<()> {
        let table = self.tables.last_mut().filter(|_| self.is_in_table);
        let table = table.context("key outside of a section")?;
        ensure!(is_example || !table.is_example, "key in a section that is commented out");
        ensure!(table.entries.iter().all(|entry| entry.key != key), "duplicate key {key}");
        let comment = std::mem::take(&mut self.comment).join(" ");
        let above = table.entries.last().filter(|_| self.is_after_key);
        let description = match above {
            Some(above) if comment.is_empty() => above.description.clone(),
            _ => comment,
        };
        ensure!(!description.is_empty(), "no comment above {key}");
        let (key, value) = (key.to_owned(), value.to_owned());
        table.entries.push(Entry { key, value, is_example, description });
        self.is_after_key = true;
        Ok(())
    }
}

/// Parses a line without its leading `#`.
fn parse_line(text: &str) -> Result<Line<'_>> {
    if text.starts_with('[') {
        let is_header = text.ends_with(']') && toml::from_str::<toml::Table>(text).is_ok();
        ensure!(is_header, "comment that begins like a section: wrap it elsewhere");
        return Ok(Line::Header(text));
    }
    let Some((key, rest)) = split_key(text) else { return Ok(Line::Comment) };
    if !rest.trim_start().starts_with('=') {
        return Ok(Line::Comment);
    }
    let value = rest.strip_prefix(" = ").context("no \" = \" between key and value")?;
    // In a list, a multi-line value and a trailing comment leave the bracket open.
    let is_value = toml::from_str::<toml::Table>(&format!("{key} = [{value}]")).is_ok();
    ensure!(is_value, "key without a single-line value");
    Ok(Line::Key(key, value))
}

/// Splits a bare, dotted or quoted key from the rest of the line.
fn split_key(text: &str) -> Option<(&str, &str)> {
    let end = match text.strip_prefix('"') {
        Some(quoted) => quoted.find('"')? + 2,
        None => text.find(|c: char| !is_key_char(c)).unwrap_or(text.len()),
    };
    (end > 0).then(|| text.split_at(end))
}

fn is_key_char(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# About the file.
#
# a comment = \"that looks like a key\"

[bus]
# The URL
# of the broker.
url = \"amqp://localhost\"
# The client certificate.
# tls.cert_file = \"client.pem\"
# tls.key_file = \"client.key\"

# An additional queue.
# [handler.queues.slow]
# Parallel calls.
# concurrency = 8

# Taints.
# [[scripts.tolerations]]
# Key and value.
# \"rockbot.dev/scripts\" = \"true\"
";

    fn entry(key: &str, value: &str, is_example: bool, description: &str) -> Entry {
        let [key, value, description] = [key, value, description].map(str::to_owned);
        Entry { key, value, is_example, description }
    }

    fn parse_error(text: &str) -> String {
        Defaults::parse("p", text).map_or_else(|error| format!("{error:#}"), |_| String::new())
    }

    #[test]
    fn tables_and_keys_have_their_comments() {
        let defaults = Defaults::parse("p", FILE).unwrap();
        let table = |header: &str, is_example, description: &str, entries| {
            let [header, description] = [header, description].map(str::to_owned);
            Table { header, is_example, description, entries }
        };
        let shared = "The client certificate.";
        assert_eq!(
            defaults.tables,
            [
                table(
                    "[bus]",
                    false,
                    "",
                    vec![
                        entry("url", "\"amqp://localhost\"", false, "The URL of the broker."),
                        entry("tls.cert_file", "\"client.pem\"", true, shared),
                        entry("tls.key_file", "\"client.key\"", true, shared),
                    ]
                ),
                table(
                    "[handler.queues.slow]",
                    true,
                    "An additional queue.",
                    vec![entry("concurrency", "8", true, "Parallel calls.")]
                ),
                table(
                    "[[scripts.tolerations]]",
                    true,
                    "Taints.",
                    vec![entry("\"rockbot.dev/scripts\"", "\"true\"", true, "Key and value.")]
                ),
            ]
        );
        assert_eq!(defaults.keys(), 5);
    }

    #[test]
    fn unexpected_line_is_refused_with_its_number() {
        for (lines, expected) in [
            ("[a]\nx = 1", "line 2: x = 1: no comment above x"),
            ("[a]\n# One.\nx = 1\n\ny = 2", "line 5: y = 2: no comment above y"),
            ("[a]\n# One.\nx = 1\n# Two.\n\n# Three.\ny = 2", "line 5: : the preceding comment"),
            ("[a]\n# One.\nx = 1\n# Two.", "end of file: the preceding comment"),
            ("[a]\n#x = 1", "line 2: #x = 1: no space after #"),
            ("[a]\n#  x = 1", "more than one space after #"),
            ("[a]\n# One.\n# x= 1", "no \" = \" between"),
            ("[a]\n# One.\n# x =1", "no \" = \" between"),
            ("[a]\n# One.\n# x = one", "without a single-line value"),
            ("[a]\n# One.\nx = 1 # or 2", "without a single-line value"),
            ("[a]\n# One.\nx = [\n1]", "without a single-line value"),
            ("[a]\n# [b] and so on.", "begins like a section"),
            ("[a]\n# One.\nx = 1 ", "trailing white space"),
            ("[a]\n# One.\n# x = 1\n# Two.\n# x = 2", "duplicate key x"),
            ("[a]\n# [b]\n# One.\nx = 1", "key in a section that is commented out"),
            ("# [a]\n# One.\n# x = 1\n\n# Two.\n# y = 1", "key outside of a section"),
            ("# [a]\n\n# [a]", "duplicate section [a]"),
            ("x = 1", "key outside of a section"),
            ("a = = 1", "not valid TOML"),
            ("", "no sections"),
        ] {
            let text = format!("# About the file.\n\n{lines}");
            let error = parse_error(&text);
            let expected = expected.replacen("line 2", "line 4", 1).replacen("line 5", "line 7", 1);
            assert!(error.contains(&expected), "{lines:?}: {error:?} lacks {expected:?}");
        }
    }

    #[test]
    fn comment_may_mention_keys_sections_and_values() {
        let text = "[a]\n# \"grpc\", or x where y = 1 and [b].\nx = 1\n";
        assert_eq!(parse_error(text), "");
    }
}
