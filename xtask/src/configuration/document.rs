//! The document: generated tables between markers, and text around them.
//!
//! The table of a section is between the lines
//! `<!-- [section], written by cargo xtask configuration --accept -->` and
//! `<!-- end of [section] -->`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use super::keys::{Part, Row, Section};

const BEGIN: &str = ", written by cargo xtask configuration --accept -->";
const END: &str = "<!-- end of ";

/// Returns the document with updated tables.
///
/// # Errors
/// For a marker of an unknown section, a section without a marker, and unpaired markers.
pub(super) fn update(document: &str, sections: &[Section]) -> Result<String> {
    let mut updated = String::new();
    let mut seen = BTreeSet::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(updated, "{line}");
        ensure!(!line.starts_with(END), "{line} has no start marker");
        let Some(header) = header(line) else { continue };
        let Some(section) = sections.iter().find(|section| section.header == header) else {
            bail!("no program has the section {header}: remove its table");
        };
        ensure!(seen.insert(header), "duplicate marker of {header}");
        let end = end_marker(header);
        ensure!(lines.any(|line| line == end), "{header} has no line {end}");
        let _ = writeln!(updated, "\n{}\n\n{end}", render(section).trim_end());
    }
    for Section { header, .. } in sections {
        if !seen.contains(header.as_str()) {
            bail!(
                "no marker for the section {header}: add these lines, and run \
                 `cargo xtask configuration --accept`\n<!-- {header}{BEGIN}\n{}",
                end_marker(header)
            );
        }
    }
    Ok(updated)
}

/// Returns the header of the section whose table begins at a line.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- ")?.strip_suffix(BEGIN)
}

fn end_marker(header: &str) -> String {
    format!("{END}{header} -->")
}

/// Returns the number of the first line that differs.
pub(super) fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.lines().zip(other.lines()).take_while(|(one, other)| one == other);
    Some(same.count() + 1)
}

fn render(section: &Section) -> String {
    let mut text = String::new();
    for part in &section.parts {
        let programs = join_names(&part.programs);
        let _ = if section.is_example {
            writeln!(text, "For example `{}`, in {programs}.\n", section.header)
        } else {
            writeln!(text, "In {programs}.\n")
        };
        for (description, programs) in &part.descriptions {
            let prefix = if programs.len() == part.programs.len() {
                String::new()
            } else {
                format!("{}: ", join_names(programs))
            };
            let _ = writeln!(text, "{prefix}{}\n", escaped(description));
        }
        text.push_str(&table(section, part));
        text.push('\n');
    }
    text
}

fn table(section: &Section, part: &Part) -> String {
    let differs = part.rows.iter().any(|row| row.programs.len() != part.programs.len());
    let mut table = if differs {
        "| key | in | default | environment | meaning |\n|---|---|---|---|---|\n".to_owned()
    } else {
        "| key | default | environment | meaning |\n|---|---|---|---|\n".to_owned()
    };
    for row in &part.rows {
        let entry = &row.entry;
        let _ = write!(table, "| {} |", code(&entry.key));
        if differs {
            let _ = write!(table, " {} |", programs_of(row, part));
        }
        let default = if entry.is_example { "–".to_owned() } else { code(&entry.value) };
        let environment = variable(&section.header, &entry.key);
        let environment = environment.map_or_else(|| "–".to_owned(), |name| code(&name));
        let _ = write!(table, " {default} | {environment} | {}", escaped(&entry.description));
        if entry.is_example {
            let _ = write!(table, " Example: {}", code(&entry.value));
        }
        table.push_str(" |\n");
    }
    table
}

/// Describes the programs of a part that have the key of a row.
fn programs_of(row: &Row, part: &Part) -> String {
    let others: BTreeSet<_> = part.programs.difference(&row.programs).cloned().collect();
    match others.len() {
        0 => "all".to_owned(),
        1 if row.programs.len() > 1 => format!("all but {}", join_names(&others)),
        _ => join_names(&row.programs),
    }
}

fn join_names(programs: &BTreeSet<String>) -> String {
    let names: Vec<_> = programs.iter().map(|program| code(program)).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the environment variable of a key. Keys in lists and keys with characters that a variable
/// must not have return `None`.
fn variable(header: &str, key: &str) -> Option<String> {
    let section = header.strip_prefix('[')?.strip_suffix(']')?;
    let path = format!("{section}.{key}");
    // `api_key` holds the content of the file and has a variable of its own.
    if key == "api_key_file" {
        return None;
    }
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    is_plain.then(|| format!("ROCKBOT_{}", path.to_uppercase().replace('.', "__")))
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Converts a comment to Markdown. Quoted text becomes code; special characters outside of code are
/// escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    let (mut is_code, mut is_quoted) = (false, false);
    for character in text.chars() {
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

    const P: &str = "\n# In\n# both.\n[a]\n# It, or `\"x\"|y`,\n# or \"b\", \"*\", *.\nx = \"1|2\"\n# Y.\n# y.z = 2\n\
                     \n# In p.\n# [[b.c]]\n# K.\n# k = 1\n";
    const Q: &str = "\n# In\n# both.\n[a]\n# Y.\n# y.z = 3\n";
    const DOCUMENT: &str = "# Title\n\n\
        <!-- [[b.c]], written by cargo xtask configuration --accept -->\nold\n<!-- end of [[b.c]] -->\n\
        \nBetween.\n\
        <!-- [a], written by cargo xtask configuration --accept -->\n<!-- end of [a] -->\nAfter.\n";

    fn sections() -> Vec<Section> {
        let programs = [("p", P), ("q", Q)];
        keys::sections(&programs.map(|(program, text)| Defaults::parse(program, text).unwrap()))
    }

    #[test]
    fn tables_are_updated_between_their_markers() {
        let updated = update(DOCUMENT, &sections()).unwrap();
        assert_eq!(
            updated,
            "# Title\n\n\
             <!-- [[b.c]], written by cargo xtask configuration --accept -->\n\n\
             For example `[[b.c]]`, in `p`.\n\n\
             In p.\n\n\
             | key | default | environment | meaning |\n|---|---|---|---|\n\
             | `k` | – | – | K. Example: `1` |\n\n\
             <!-- end of [[b.c]] -->\n\
             \nBetween.\n\
             <!-- [a], written by cargo xtask configuration --accept -->\n\n\
             In `p` and `q`.\n\n\
             In both.\n\n\
             | key | in | default | environment | meaning |\n|---|---|---|---|---|\n\
             | `x` | `p` | `\"1\\|2\"` | `ROCKBOT_A__X` | It, or `\"x\"\\|y`, or `\"b\"`, `\"*\"`, \\*. |\n\
             | `y.z` | all | – | `ROCKBOT_A__Y__Z` | Y. Example: `2` |\n\n\
             <!-- end of [a] -->\nAfter.\n"
        );
        assert_eq!(update(&updated, &sections()).unwrap(), updated);
        assert_eq!(first_difference(&updated, &updated), None);
        assert_eq!(first_difference(DOCUMENT, &updated), Some(4));
    }

    #[test]
    fn unmatched_markers_are_refused() {
        let marker = "<!-- [a], written by cargo xtask configuration --accept -->";
        let twice = format!("{DOCUMENT}{marker}\n<!-- end of [a] -->\n");
        let unknown = DOCUMENT.replace("[a]", "[d]");
        for (document, expected) in [
            (DOCUMENT.replace("<!-- end of [a] -->", ""), "[a] has no line <!-- end of [a] -->"),
            (DOCUMENT.replace(marker, ""), "<!-- end of [a] --> has no start marker"),
            (twice, "duplicate marker of [a]"),
            (unknown, "no program has the section [d]"),
            ("# Title\n".to_owned(), "no marker for the section [a]: add these lines"),
        ] {
            let error = update(&document, &sections()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} lacks {expected:?}");
        }
    }
}
