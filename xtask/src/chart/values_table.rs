//! The table of values in the chart's README, generated from the comments in `values.yaml`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::chart;

const BEGIN: &str = "<!-- values: written by cargo xtask chart --accept -->\n";
const END: &str = "<!-- end of values -->\n";

/// Fails if the table is stale, or updates it.
pub(super) fn check(accept: bool) -> Result<()> {
    let table = table(&fs::read_to_string(chart().join("values.yaml"))?);
    let file = chart().join("README.md");
    let text = fs::read_to_string(&file).context("the chart has no README.md")?;
    let (before, rest) = text.split_once(BEGIN).context("README.md has no table of values")?;
    let (current, after) =
        rest.split_once(END).context("the table in README.md has no end marker")?;
    if accept {
        return Ok(fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}"))?);
    }
    ensure!(current == table, "{} is stale: run `cargo xtask chart --accept`", file.display());
    Ok(())
}

/// Returns the table, with a row for each key that has a comment directly above it.
fn table(values: &str) -> String {
    let mut rows = String::from("| key | default | meaning |\n|---|---|---|\n");
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(text) = trimmed.strip_prefix('#') {
            comment.push(text.trim());
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

/// Returns key and value of a map entry, or `None` for list items.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric());
    (plain && (value.is_empty() || value.starts_with(' '))).then_some((key, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commented_key_gets_a_row_with_its_path() {
        let values = "# About the file.\n\n# The broker.\nbroker:\n  # Its URL,\n  # or none.\n  \
                      url: \"a|b\"\n  plain: 1\n  # Peers.\n  from:\n    - {name: x}\n# Empty.\nlast: {}\n";
        let rows: Vec<_> = table(values).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| `broker` |  | The broker. |",
                "| `broker.url` | `\"a|b\"` | Its URL, or none. |",
                "| `broker.from` | see values.yaml | Peers. |",
                "| `last` |  | Empty. |",
            ]
        );
    }
}
