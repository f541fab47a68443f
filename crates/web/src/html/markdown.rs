//! Conversion of a part of a page to Markdown.

use std::collections::HashSet;

use dom_query::{NodeId, NodeRef};

/// Elements that start a line and that the serializer takes for inline ones.
const BLOCKS: [&str; 25] = [
    "address",
    "aside",
    "caption",
    "center",
    "dd",
    "details",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hgroup",
    "label",
    "legend",
    "main",
    "menu",
    "nav",
    "optgroup",
    "option",
    "search",
    "select",
    "summary",
    "textarea",
];
/// Parts of a table.
const TABLE: [&str; 7] = ["table", "tbody", "td", "tfoot", "th", "thead", "tr"];
/// Deepest nesting of quotations and of lists that is kept: each level is repeated in every line.
const MAX_NESTING: usize = 6;

/// Returns the Markdown of a part of a page. Changes the names of its elements.
pub(super) fn markdown(root: &NodeRef<'_>) -> String {
    prepare(root);
    let markdown = root.md(None);
    compact(&markdown)
}

/// Renames elements so that the serializer separates them, and flattens what nests too deep.
fn prepare(root: &NodeRef<'_>) {
    let nodes: Vec<_> = std::iter::once(*root).chain(root.descendants_it()).collect();
    let tables = nodes.iter().filter(|node| node.has_name("table") && is_layout(node));
    let layouts: HashSet<NodeId> = tables.map(|table| table.id).collect();
    let is_layout_part = |node: &&NodeRef<'_>| {
        is_one_of(node, &TABLE) && own_table(node).is_some_and(|table| layouts.contains(&table.id))
    };
    // All are found before the first is renamed, because a part is found by the name of its table.
    let parts: Vec<_> = nodes.iter().filter(is_layout_part).collect();
    parts.iter().for_each(|part| part.rename("div"));
    for node in &nodes {
        let is_deep =
            |names: &[&str]| is_one_of(node, names) && nesting(node, names) >= MAX_NESTING;
        if is_one_of(node, &BLOCKS) || is_deep(&["blockquote"]) || is_deep(&["ol", "ul"]) {
            node.rename("div");
        }
    }
}

/// Returns the table that a node is part of.
fn own_table<'a>(node: &NodeRef<'a>) -> Option<NodeRef<'a>> {
    std::iter::once(*node).chain(node.ancestors_it(None)).find(|node| node.has_name("table"))
}

/// Returns whether a table arranges parts of the page: it contains another one, or rows of different
/// lengths.
fn is_layout(table: &NodeRef<'_>) -> bool {
    let mut cells = None;
    for node in table.descendants_it() {
        if node.has_name("table") {
            return true;
        }
        if node.has_name("tr") {
            let row = node.children_it(false).filter(|cell| is_one_of(cell, &["td", "th"])).count();
            if row > 0 && *cells.get_or_insert(row) != row {
                return true;
            }
        }
    }
    // A column of its own has no header to keep.
    cells.is_none_or(|cells| cells < 2)
}

/// Counts the ancestors with these names, up to the limit.
fn nesting(node: &NodeRef<'_>, names: &[&str]) -> usize {
    let ancestors = node.ancestors_it(None).filter(|ancestor| is_one_of(ancestor, names));
    ancestors.take(MAX_NESTING).count()
}

fn is_one_of(node: &NodeRef<'_>, names: &[&str]) -> bool {
    node.node_name().is_some_and(|name| names.contains(&&*name))
}

/// Removes trailing spaces and repeated blank lines, except in code.
fn compact(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let (mut fence, mut blank) = (None, false);
    for line in markdown.lines() {
        let marks = line.trim_start().len() - line.trim_start().trim_start_matches('`').len();
        if let Some(open) = fence {
            text.push_str(line);
            if marks >= open && line.trim().len() == marks {
                fence = None;
            }
        } else {
            let line = line.trim_end();
            if line.is_empty() {
                blank = !text.is_empty();
                continue;
            }
            if std::mem::take(&mut blank) {
                text.push('\n');
            }
            text.push_str(line);
            fence = (marks >= 3).then_some(marks);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::parse::parse;

    fn converted(html: &str) -> String {
        let document = parse(html).unwrap();
        markdown(&document.body().unwrap())
    }

    #[test]
    fn page_elements_become_markdown() {
        for (html, expected) in [
            ("<h2>Title</h2><p>One <b>two</b><br>three", "## Title\n\nOne **two**\nthree"),
            ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n    - b\n- c"),
            ("<a href=https://a.org/x>text</a>", "[text](https://a.org/x)"),
            ("<dl><dt>term<dd>meaning</dl>", "term\n\nmeaning"),
            (
                "<pre><code class=language-rust>fn main() {\n\n\n}  \n</code></pre>",
                "```rust\nfn main() {\n\n\n}  \n```",
            ),
            (
                "<table><tr><th>a<th>b<tr><td>1<td>x|y</table>",
                "| a | b |\n| - | - |\n| 1 | x\\|y |",
            ),
            ("<table><tr><td>one<tr><td>two<td>three</table>", "one\n\ntwo\n\nthree"),
            (
                "<table><tr><td>left<td><table><tr><th>a<th>b<tr><td>1<td>2</table></table>",
                "left\n\n| a | b |\n| - | - |\n| 1 | 2 |",
            ),
            ("<figure>picture<figcaption>caption</figcaption></figure>", "picture\n\ncaption"),
        ] {
            assert_eq!(converted(html), expected, "{html}");
        }
    }

    #[test]
    fn deep_quotations_are_flattened() {
        let html = format!("{}<pre>x\ny</pre>", "<blockquote>".repeat(400));
        let markdown = converted(&html);
        assert!(markdown.contains(&"> ".repeat(MAX_NESTING)), "{markdown}");
        assert!(!markdown.contains(&"> ".repeat(MAX_NESTING + 1)), "{markdown}");
    }
}
