//! The table of values in the chart's README, made of the comments in `values.yaml`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::chart;

const BEGIN: &str = "<!-- values: written by cargo xtask chart --accept -->\n";
const END: &str = "<!-- end of values -->\n";

/// Fails when the table is stale, or writes it anew.
pub(super) fn check(accept: bool) -> Result<()> {
    let table = table(&fs::read_to_string(chart().join("values.yaml"))?);
    let file = chart().join("README.md");
    let text = fs::read_to_string(&file).context("the chart has no README.md")?;
    let (before, rest) = text.split_once(BEGIN).context("README.md has no table of values")?;
    let (there, after) = rest.split_once(END).context("the table in README.md has no end")?;
    if accept {
        return Ok(fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}"))?);
    }
    ensure!(there == table, "{} is stale: run `cargo xtask chart --accept`", file.display());
    Ok(())
}

/// A row for each key with a comment right above it.
fn table(values: &str) -> String {
    let mut rows = String::from("| key | default | meaning |\n|---|---|---|\n");
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let Some((key, value)) = entry(trimmed) else {
            comment.clear();
            continue;
        };
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key));
        if !comment.is_empty() {
            let keys: Vec<_> = path.iter().map(|(_, key)| *key).collect();
            let next = lines.peek().copied().unwrap_or_default().trim_start();
            let default = match value {
                "" if next.starts_with("- ") => "see values.yaml".to_owned(),
                "" | "{}" | "[]" | "\"\"" => String::new(),
                value => format!("`{value}`"),
            };
            let meaning = comment.join(" ").replace('|', "\\|");
            let _ = writeln!(rows, "| `{}` | {default} | {meaning} |", keys.join("."));
            comment.clear();
        }
    }
    rows
}

/// Key and value of a line of a map; nothing for entries of lists.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric());
    (plain && (value.is_empty() || value.starts_with(' '))).then_some((key, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_with_a_comment_gets_a_row_with_its_whole_path() {
        let values = "# About the file.\n\n# The broker.\nbroker:\n  # Where it is,\n  # or is not.\n  \
                      url: \"a|b\"\n  plain: 1\n  # Who may.\n  from:\n    - {name: x}\n# Empty.\nlast: {}\n";
        let rows: Vec<_> = table(values).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| `broker` |  | The broker. |",
                "| `broker.url` | `\"a|b\"` | Where it is, or is not. |",
                "| `broker.from` | see values.yaml | Who may. |",
                "| `last` |  | Empty. |",
            ]
        );
    }
}
