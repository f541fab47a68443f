//! The document: tables between marks, and what is written by hand around them.
//!
//! Each section of the defaults has its place in the document, between a line
//! `<!-- [section], written by cargo xtask configuration --accept -->` and a line
//! `<!-- end of [section] -->`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use super::keys::{Part, Row, Section};

const BEGIN: &str = ", written by cargo xtask configuration --accept -->";
const END: &str = "<!-- end of ";

/// The document with what the sections say between their marks.
///
/// # Errors
/// A mark of a section that is not there, a section without a mark, or marks that do not fit.
pub(super) fn renew(document: &str, sections: &[Section]) -> Result<String> {
    let mut renewed = String::new();
    let mut seen = BTreeSet::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(renewed, "{line}");
        ensure!(!line.starts_with(END), "{line} has no beginning");
        let Some(header) = header(line) else { continue };
        let Some(section) = sections.iter().find(|section| section.header == header) else {
            bail!("no program has the section {header}: take its table out");
        };
        ensure!(seen.insert(header), "{header} is there twice");
        let end = end(header);
        ensure!(lines.any(|line| line == end), "{header} has no line {end}");
        let _ = writeln!(renewed, "\n{}\n\n{end}", told(section).trim_end());
    }
    for Section { header, .. } in sections {
        if !seen.contains(header.as_str()) {
            bail!(
                "it has no place for the section {header}: write these lines where it belongs, and \
                 run `cargo xtask configuration --accept`\n<!-- {header}{BEGIN}\n{}",
                end(header)
            );
        }
    }
    Ok(renewed)
}

/// The section whose table begins at a line.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- ")?.strip_suffix(BEGIN)
}

fn end(header: &str) -> String {
    format!("{END}{header} -->")
}

/// The number of the first line that is not the same.
pub(super) fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.lines().zip(other.lines()).take_while(|(one, other)| one == other);
    Some(same.count() + 1)
}

fn told(section: &Section) -> String {
    let mut told = String::new();
    for part in &section.parts {
        let programs = listed(&part.programs);
        let _ = match section.is_example {
            true => writeln!(told, "For example `{}`, in {programs}.\n", section.header),
            false => writeln!(told, "In {programs}.\n"),
        };
        for (words, who) in &part.about {
            let of = if who.len() == part.programs.len() {
                String::new()
            } else {
                format!("{}: ", listed(who))
            };
            let _ = writeln!(told, "{of}{}\n", escaped(words));
        }
        told.push_str(&table(section, part));
        told.push('\n');
    }
    told
}

fn table(section: &Section, part: &Part) -> String {
    let differs = part.rows.iter().any(|row| row.programs.len() != part.programs.len());
    let mut table = match differs {
        true => {
            "| key | in | default | environment | meaning |\n|---|---|---|---|---|\n".to_owned()
        }
        false => "| key | default | environment | meaning |\n|---|---|---|---|\n".to_owned(),
    };
    for row in &part.rows {
        let entry = &row.entry;
        let _ = write!(table, "| {} |", code(&entry.key));
        if differs {
            let _ = write!(table, " {} |", those(row, part));
        }
        let default = if entry.is_example { "–".to_owned() } else { code(&entry.value) };
        let environment = variable(&section.header, &entry.key);
        let environment = environment.map_or_else(|| "–".to_owned(), |name| code(&name));
        let _ = write!(table, " {default} | {environment} | {}", escaped(&entry.meaning));
        if entry.is_example {
            let _ = write!(table, " Example: {}", code(&entry.value));
        }
        table.push_str(" |\n");
    }
    table
}

/// Which programs of a part have a key like that.
fn those(row: &Row, part: &Part) -> String {
    let others: BTreeSet<_> = part.programs.difference(&row.programs).cloned().collect();
    match others.len() {
        0 => "all".to_owned(),
        1 if row.programs.len() > 1 => format!("all but {}", listed(&others)),
        _ => listed(&row.programs),
    }
}

fn listed(programs: &BTreeSet<String>) -> String {
    let names: Vec<_> = programs.iter().map(|program| code(program)).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The variable that sets a key. One of a list has none, nor one whose name holds more than a variable
/// may.
fn variable(header: &str, key: &str) -> Option<String> {
    let section = header.strip_prefix('[')?.strip_suffix(']')?;
    let path = format!("{section}.{key}");
    // The variable of this name has the file's content in `api_key`.
    if key == "api_key_file" {
        return None;
    }
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    is_plain.then(|| format!("ROCKBOT_{}", path.to_uppercase().replace('.', "__")))
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Words of a comment as Markdown: what is in quotes is code, as what is between backticks is already,
/// and what Markdown would read as its own is plain.
fn escaped(words: &str) -> String {
    let mut escaped = String::new();
    let (mut is_code, mut is_quoted) = (false, false);
    for character in words.chars() {
        let is_special = matches!(character, '*' | '<' | '~' | '$' | '[' | ']');
        if character == '|' || is_special && !is_code && !is_quoted {
            escaped.push('\\');
        }
        if character == '"' && !is_code {
            is_quoted = !is_quoted;
            escaped.push_str(if is_quoted { "`\"" } else { "\"`" });
            continue;
        }
        is_code ^= character == '`';
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::{defaults::Defaults, keys};
    use super::*;

    const P: &str = "\n# Said\n# by both.\n[a]\n# It, or `\"x\"|y`,\n# or \"b\", \"*\", *.\nx = \"1|2\"\n# Y.\n# y.z = 2\n\
                     \n# Of p.\n# [[b.c]]\n# K.\n# k = 1\n";
    const Q: &str = "\n# Said\n# by both.\n[a]\n# Y.\n# y.z = 3\n";
    const DOCUMENT: &str = "# By hand\n\n\
        <!-- [[b.c]], written by cargo xtask configuration --accept -->\nold\n<!-- end of [[b.c]] -->\n\
        \nBetween.\n\
        <!-- [a], written by cargo xtask configuration --accept -->\n<!-- end of [a] -->\nAfter.\n";

    fn sections() -> Vec<Section> {
        let programs = [("p", P), ("q", Q)];
        keys::sections(&programs.map(|(program, text)| Defaults::parse(program, text).unwrap()))
    }

    #[test]
    fn what_is_between_marks_is_written_anew_and_the_rest_stays() {
        let renewed = renew(DOCUMENT, &sections()).unwrap();
        assert_eq!(
            renewed,
            "# By hand\n\n\
             <!-- [[b.c]], written by cargo xtask configuration --accept -->\n\n\
             For example `[[b.c]]`, in `p`.\n\n\
             Of p.\n\n\
             | key | default | environment | meaning |\n|---|---|---|---|\n\
             | `k` | – | – | K. Example: `1` |\n\n\
             <!-- end of [[b.c]] -->\n\
             \nBetween.\n\
             <!-- [a], written by cargo xtask configuration --accept -->\n\n\
             In `p` and `q`.\n\n\
             Said by both.\n\n\
             | key | in | default | environment | meaning |\n|---|---|---|---|---|\n\
             | `x` | `p` | `\"1\\|2\"` | `ROCKBOT_A__X` | It, or `\"x\"\\|y`, or `\"b\"`, `\"*\"`, \\*. |\n\
             | `y.z` | all | – | `ROCKBOT_A__Y__Z` | Y. Example: `2` |\n\n\
             <!-- end of [a] -->\nAfter.\n"
        );
        assert_eq!(renew(&renewed, &sections()).unwrap(), renewed);
        assert_eq!(first_difference(&renewed, &renewed), None);
        assert_eq!(first_difference(DOCUMENT, &renewed), Some(4));
    }

    #[test]
    fn marks_that_do_not_fit_the_sections_are_refused() {
        let mark = "<!-- [a], written by cargo xtask configuration --accept -->";
        let twice = format!("{DOCUMENT}{mark}\n<!-- end of [a] -->\n");
        let unknown = DOCUMENT.replace("[a]", "[d]");
        for (document, words) in [
            (DOCUMENT.replace("<!-- end of [a] -->", ""), "[a] has no line <!-- end of [a] -->"),
            (DOCUMENT.replace(mark, ""), "<!-- end of [a] --> has no beginning"),
            (twice, "[a] is there twice"),
            (unknown, "no program has the section [d]"),
            ("# By hand\n".to_owned(), "it has no place for the section [a]: write these lines"),
        ] {
            let told = renew(&document, &sections()).unwrap_err().to_string();
            assert!(told.contains(words), "{told:?} lacks {words:?}");
        }
    }
}
