//! The commented defaults of a program, as a list of what can be configured.
//!
//! It knows the form that these files have and refuses every line of another, so that nothing that can
//! be configured is left out by mistake:
//!
//! ```toml
//! # What the file is.
//!
//! # What the section is about, where its name does not say it.
//! [section]
//! # What the key means.
//! key = "its default"
//! # A key without a default is commented out, with an example.
//! # other = 7
//!
//! # So is a section, whose last name is an example too.
//! # [section.name]
//! # What the key means.
//! # key = "an example"
//! ```

use anyhow::{Context, Result, bail, ensure};

/// What a program's file says.
#[derive(Debug)]
pub(super) struct Defaults {
    /// The program.
    pub(super) program: String,
    /// Its tables, in the order of the file.
    pub(super) tables: Vec<Table>,
}

/// `[name]` and what is in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// As it is written in the file, with its brackets.
    pub(super) header: String,
    /// Whether it is commented out.
    pub(super) is_example: bool,
    /// The comment over it.
    pub(super) about: String,
    pub(super) entries: Vec<Entry>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Its default, or an example, as it is written in the file.
    pub(super) value: String,
    /// Whether it is commented out.
    pub(super) is_example: bool,
    /// The comment over it, or over the keys right above it.
    pub(super) meaning: String,
}

impl Defaults {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// The first line that it does not understand, with its number.
    pub(super) fn parse(program: impl Into<String>, text: &str) -> Result<Self> {
        toml::from_str::<toml::Table>(text).context("it is not TOML")?;
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            reader.line(line).with_context(|| format!("line {}: {line}", index + 1))?;
        }
        reader.line("").context("the end of the file")?;
        ensure!(!reader.tables.is_empty(), "it has no sections");
        Ok(Self { program: program.into(), tables: reader.tables })
    }

    pub(super) fn keys(&self) -> usize {
        self.tables.iter().map(|table| table.entries.len()).sum()
    }
}

/// What was read so far.
#[derive(Debug, Default)]
struct Reader {
    tables: Vec<Table>,
    /// The lines of the comment that is not over anything yet.
    comment: Vec<String>,
    /// Past the comment at the top, which is about the file.
    is_past_top: bool,
    /// Whether keys that come now are of the last table.
    is_in_table: bool,
    /// Whether the line before was a key, whose comment holds for the next one too.
    is_after_key: bool,
}

/// What a line holds.
enum Line<'a> {
    Header(&'a str),
    Key(&'a str, &'a str),
    Prose,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        ensure!(line.trim_end() == line, "white space at the end");
        if line.is_empty() {
            return self.blank();
        }
        let Some(rest) = line.strip_prefix('#') else {
            self.is_past_top = true;
            return match read(line)? {
                Line::Header(header) => self.header(header, false),
                Line::Key(key, value) => self.key(key, value, false),
                Line::Prose => bail!("neither a section nor a key"),
            };
        };
        if !self.is_past_top {
            return Ok(());
        }
        let words = rest.strip_prefix(' ').context("a comment has a space after its #")?;
        ensure!(!words.starts_with(' '), "a comment has one space after its #");
        match read(words)? {
            Line::Header(header) => self.header(header, true),
            Line::Key(key, value) => self.key(key, value, true),
            Line::Prose => {
                self.comment.push(words.to_owned());
                self.is_after_key = false;
                Ok(())
            }
        }
    }

    fn blank(&mut self) -> Result<()> {
        ensure!(self.comment.is_empty(), "the comment before it is over nothing");
        self.is_past_top = true;
        self.is_after_key = false;
        // A key that is commented out and stands alone would be of no table, or of the one before.
        self.is_in_table &= self.tables.last().is_some_and(|table| !table.is_example);
        Ok(())
    }

    fn header(&mut self, header: &str, is_example: bool) -> Result<()> {
        let is_new = self.tables.iter().all(|table| table.header != header);
        ensure!(is_new, "{header} is there already");
        self.tables.push(Table {
            header: header.to_owned(),
            is_example,
            about: std::mem::take(&mut self.comment).join(" "),
            entries: Vec::new(),
        });
        (self.is_in_table, self.is_after_key) = (true, false);
        Ok(())
    }

    fn key(&mut self, key: &str, value: &str, is_example: bool) -> Result<()> {
        let table = self.tables.last_mut().filter(|_| self.is_in_table);
        let table = table.context("a key of no section")?;
        ensure!(is_example || !table.is_example, "a key of a section that is commented out");
        ensure!(table.entries.iter().all(|entry| entry.key != key), "{key} is there already");
        let over = std::mem::take(&mut self.comment).join(" ");
        let above = table.entries.last().filter(|_| self.is_after_key);
        let meaning = match above {
            Some(above) if over.is_empty() => above.meaning.clone(),
            _ => over,
        };
        ensure!(!meaning.is_empty(), "there is no comment over {key}");
        let (key, value) = (key.to_owned(), value.to_owned());
        table.entries.push(Entry { key, value, is_example, meaning });
        self.is_after_key = true;
        Ok(())
    }
}

/// What a line holds, without the `#` of what is commented out.
fn read(words: &str) -> Result<Line<'_>> {
    if words.starts_with('[') {
        let is_header = words.ends_with(']') && toml::from_str::<toml::Table>(words).is_ok();
        ensure!(is_header, "begins like a section and is none: wrap the comment elsewhere");
        return Ok(Line::Header(words));
    }
    let Some((key, rest)) = split_key(words) else { return Ok(Line::Prose) };
    if !rest.trim_start().starts_with('=') {
        return Ok(Line::Prose);
    }
    let value =
        rest.strip_prefix(" = ").context("a key and its value have \" = \" between them")?;
    // In a list, a value of several lines and a comment behind a value leave the bracket open.
    let is_value = toml::from_str::<toml::Table>(&format!("{key} = [{value}]")).is_ok();
    ensure!(is_value, "begins like a key, and what follows is no value on one line");
    Ok(Line::Key(key, value))
}

/// The key that a line begins with, bare, dotted or quoted, and what follows it.
fn split_key(words: &str) -> Option<(&str, &str)> {
    let end = match words.strip_prefix('"') {
        Some(quoted) => quoted.find('"')? + 2,
        None => words.find(|c: char| !is_of_key(c)).unwrap_or(words.len()),
    };
    (end > 0).then(|| words.split_at(end))
}

fn is_of_key(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# About the file.
#
# another = \"word about it\"

[bus]
# Where it is,
# or is not.
url = \"amqp://localhost\"
# Two of a kind.
# tls.cert_file = \"client.pem\"
# tls.key_file = \"client.key\"

# As many as you like.
# [handler.queues.slow]
# How many.
# concurrency = 8

# Taints.
# [[scripts.tolerations]]
# Its name.
# \"rockbot.dev/scripts\" = \"true\"
";

    fn entry(key: &str, value: &str, is_example: bool, meaning: &str) -> Entry {
        let [key, value, meaning] = [key, value, meaning].map(str::to_owned);
        Entry { key, value, is_example, meaning }
    }

    fn problem(text: &str) -> String {
        Defaults::parse("p", text).map_or_else(|error| format!("{error:#}"), |_| String::new())
    }

    #[test]
    fn a_file_is_a_list_of_tables_and_keys_with_what_is_said_over_them() {
        let defaults = Defaults::parse("p", FILE).unwrap();
        let table = |header: &str, is_example, about: &str, entries| {
            let [header, about] = [header, about].map(str::to_owned);
            Table { header, is_example, about, entries }
        };
        let kind = "Two of a kind.";
        assert_eq!(
            defaults.tables,
            [
                table(
                    "[bus]",
                    false,
                    "",
                    vec![
                        entry("url", "\"amqp://localhost\"", false, "Where it is, or is not."),
                        entry("tls.cert_file", "\"client.pem\"", true, kind),
                        entry("tls.key_file", "\"client.key\"", true, kind),
                    ]
                ),
                table(
                    "[handler.queues.slow]",
                    true,
                    "As many as you like.",
                    vec![entry("concurrency", "8", true, "How many.")]
                ),
                table(
                    "[[scripts.tolerations]]",
                    true,
                    "Taints.",
                    vec![entry("\"rockbot.dev/scripts\"", "\"true\"", true, "Its name.")]
                ),
            ]
        );
        assert_eq!(defaults.keys(), 5);
    }

    #[test]
    fn a_line_of_another_form_is_refused_with_its_number() {
        for (lines, words) in [
            ("[a]\nx = 1", "line 2: x = 1: there is no comment over x"),
            ("[a]\n# One.\nx = 1\n\ny = 2", "line 5: y = 2: there is no comment over y"),
            ("[a]\n# One.\nx = 1\n# Two.\n\n# Three.\ny = 2", "line 5: : the comment before it"),
            ("[a]\n# One.\nx = 1\n# Two.", "the end of the file: the comment before it"),
            ("[a]\n#x = 1", "line 2: #x = 1: a comment has a space after its #"),
            ("[a]\n#  x = 1", "a comment has one space after its #"),
            ("[a]\n# One.\n# x= 1", "have \" = \" between them"),
            ("[a]\n# One.\n# x =1", "have \" = \" between them"),
            ("[a]\n# One.\n# x = one", "no value on one line"),
            ("[a]\n# One.\nx = 1 # or 2", "no value on one line"),
            ("[a]\n# One.\nx = [\n1]", "no value on one line"),
            ("[a]\n# [b] and so on.", "begins like a section and is none"),
            ("[a]\n# One.\nx = 1 ", "white space at the end"),
            ("[a]\n# One.\n# x = 1\n# Two.\n# x = 2", "x is there already"),
            ("[a]\n# [b]\n# One.\nx = 1", "a key of a section that is commented out"),
            ("# [a]\n# One.\n# x = 1\n\n# Two.\n# y = 1", "a key of no section"),
            ("# [a]\n\n# [a]", "[a] is there already"),
            ("x = 1", "a key of no section"),
            ("a = = 1", "it is not TOML"),
            ("", "it has no sections"),
        ] {
            let text = format!("# About the file.\n\n{lines}");
            let told = problem(&text);
            let words = words.replacen("line 2", "line 4", 1).replacen("line 5", "line 7", 1);
            assert!(told.contains(&words), "{lines:?}: {told:?} lacks {words:?}");
        }
    }

    #[test]
    fn a_comment_may_speak_of_keys_sections_and_values() {
        let text = "[a]\n# \"grpc\", or x where y = 1 and [b].\nx = 1\n";
        assert_eq!(problem(text), "");
    }
}
