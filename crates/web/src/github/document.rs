//! Markdown of pages: fields on a line each, texts of people without hidden parts.

use std::fmt::Write;

use rockbot_contracts::outside_text;

use crate::one_line::one_line;

/// Limit of a document, in bytes.
const MAX_BYTES: usize = 768 * 1024;
/// Limits of a title and a field, in characters.
const MAX_TITLE: usize = 300;
const MAX_FIELD: usize = 500;

/// A page as Markdown. All text is of the authors on GitHub: data, not instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubDocument {
    /// Title, on one line.
    pub title: String,
    /// Markdown, at most 768 KiB and a note.
    pub markdown: String,
}

/// A document that is being written.
pub(super) struct Document {
    title: String,
    markdown: String,
}

impl Document {
    /// Begins with a heading.
    pub(super) fn new(title: &str) -> Self {
        let title = one_line(title, MAX_TITLE);
        let markdown = format!("# {title}\n\n");
        Self { title, markdown }
    }

    /// Adds a line `name: value`, unless the value is empty.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        let value = one_line(value, MAX_FIELD);
        if !value.is_empty() {
            let _ = writeln!(self.markdown, "{name}: {value}");
        }
    }

    /// Adds a rule between the fields and the text.
    pub(super) fn rule(&mut self) {
        self.markdown.push_str("\n---\n\n");
    }

    /// Adds a heading of the second level.
    pub(super) fn heading(&mut self, title: &str) {
        let _ = write!(self.markdown, "## {}\n\n", one_line(title, MAX_TITLE));
    }

    /// Adds a line of text.
    pub(super) fn line(&mut self, text: &str) {
        self.markdown.push_str(text);
        self.markdown.push('\n');
    }

    /// Adds Markdown that a person wrote, or `otherwise` when it is empty.
    pub(super) fn body(&mut self, markdown: Option<&str>, otherwise: &str) {
        let text = visible_markdown(markdown.unwrap_or_default());
        let text = text.trim();
        self.markdown.push_str(if text.is_empty() { otherwise } else { text });
        self.markdown.push_str("\n\n");
    }

    /// Adds text in a code fence that it cannot end.
    pub(super) fn fenced(&mut self, language: &str, text: &str) {
        let text = outside_text::stripped(text);
        let fence = "`".repeat(longest_run(&text).max(2) + 1);
        let text = text.trim_end_matches('\n');
        let _ = write!(self.markdown, "{fence}{language}\n{text}\n{fence}\n\n");
    }

    /// Ends the document.
    pub(super) fn finish(self) -> GithubDocument {
        let mut markdown = self.markdown;
        if markdown.len() > MAX_BYTES {
            markdown.truncate(markdown.floor_char_boundary(MAX_BYTES));
            let _ = write!(markdown, "\n\n[cut: the page is longer than {} KiB]", MAX_BYTES / 1024);
        }
        markdown.truncate(markdown.trim_end().len());
        GithubDocument { title: self.title, markdown: markdown + "\n" }
    }
}

/// Formats a time of the API, `2026-05-01T12:30:00Z`, for people.
pub(super) fn when(time: Option<&str>) -> String {
    let time = time.unwrap_or_default();
    match (time.get(..10), time.get(10..11), time.get(11..16), time.get(16..)) {
        (Some(date), Some("T"), Some(clock), Some(rest)) if rest.len() == 4 => {
            one_line(&format!("{date} {clock} UTC"), 40)
        }
        _ => one_line(time, 40),
    }
}

/// Formats a number of bytes.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1_024..=1_048_575 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}

fn longest_run(text: &str) -> usize {
    let runs = text.split(|c| c != '`').map(str::len);
    runs.max().unwrap_or_default()
}

/// Returns Markdown without what a reader of the page does not see: comments outside of code, and
/// invisible characters.
pub(super) fn visible_markdown(text: &str) -> String {
    let text = outside_text::stripped(text);
    let mut visible = String::with_capacity(text.len());
    let mut fence: Option<(char, usize)> = None;
    let mut is_in_comment = false;
    for line in text.lines() {
        if let Some((mark, length)) = fence {
            if closes(line, mark, length) {
                fence = None;
            }
            visible.push_str(line);
        } else if !is_in_comment && let Some(opened) = opens(line) {
            fence = Some(opened);
            visible.push_str(line);
        } else if !is_in_comment && line.trim_start().starts_with("[//]:") {
            continue;
        } else {
            push_without_comments(line, &mut is_in_comment, &mut visible);
        }
        visible.push('\n');
    }
    if let Some((mark, length)) = fence {
        // An open fence ends with its text, not with the document.
        visible.extend(std::iter::repeat_n(mark, length));
        visible.push('\n');
    }
    visible
}

fn push_without_comments(line: &str, is_in_comment: &mut bool, visible: &mut String) {
    let mut rest = line;
    loop {
        if *is_in_comment {
            let Some(end) = rest.find("-->") else { return };
            *is_in_comment = false;
            rest = &rest[end + 3..];
        }
        let Some(start) = rest.find("<!--") else { break };
        let (before, comment) = rest.split_at(start);
        visible.push_str(before);
        *is_in_comment = true;
        rest = &comment[4..];
    }
    visible.push_str(rest);
}

/// Returns the mark and length of a fence that the line opens. Only fences that begin a line count: a
/// fence in a list may be missed, a comment is never taken for code.
fn opens(line: &str) -> Option<(char, usize)> {
    let (mark, length, rest) = fence(line)?;
    (mark != '`' || !rest.contains('`')).then_some((mark, length))
}

fn closes(line: &str, mark: char, length: usize) -> bool {
    fence(line)
        .is_some_and(|(other, run, rest)| other == mark && run >= length && rest.trim().is_empty())
}

fn fence(line: &str) -> Option<(char, usize, &str)> {
    let text = line.trim_start_matches(' ');
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let rest = text.trim_start_matches(mark);
    let length = text.len() - rest.len();
    (line.len() - text.len() <= 3 && length >= 3).then_some((mark, length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_text_is_removed_from_markdown() {
        for (text, expected) in [
            ("a <!-- hidden --> b", "a  b\n"),
            ("a <!-- one\ntwo\nthree --> b", "a \n\n b\n"),
            ("a <!-- never ends\nb", "a \n\n"),
            ("```html\n<!-- shown -->\n```\n<!-- x -->b", "```html\n<!-- shown -->\n```\nb\n"),
            ("    ```\n<!-- x -->b", "    ```\nb\n"),
            (
                "~~~~\n```\n~~~\n<!-- shown -->\n~~~~\n<!-- x -->",
                "~~~~\n```\n~~~\n<!-- shown -->\n~~~~\n\n",
            ),
            ("[//]: # (do this)\ntext", "text\n"),
            ("a\u{200b}b\u{202e}c", "abc\n"),
            ("<!-- ``` -->\n<!-- x -->y", "\ny\n"),
            ("<!--><!-- x -->y", "y\n"),
            ("````rs\ncode\n```", "````rs\ncode\n```\n````\n"),
        ] {
            assert_eq!(visible_markdown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn code_cannot_end_its_fence() {
        let mut document = Document::new("t");
        document.fenced("rs", "a\n```\nb\n`````\n");
        let markdown = document.finish().markdown;
        assert_eq!(markdown, "# t\n\n``````rs\na\n```\nb\n`````\n``````\n");
    }

    #[test]
    fn document_is_bounded() {
        let mut document = Document::new(&"t\n".repeat(1000));
        document.field("A", &"v ".repeat(100_000));
        document.body(Some(&"é".repeat(MAX_BYTES)), "");
        let document = document.finish();
        assert!(document.markdown.len() < MAX_BYTES + 100);
        assert!(document.markdown.ends_with("[cut: the page is longer than 768 KiB]\n"));
        assert!(document.title.chars().count() <= MAX_TITLE && !document.title.contains('\n'));
    }

    #[test]
    fn time_and_size_are_readable() {
        assert_eq!(when(Some("2026-05-01T12:30:00Z")), "2026-05-01 12:30 UTC");
        assert_eq!(when(Some("yesterday\n")), "yesterday");
        assert_eq!(
            (when(None), size(5), size(2_000)),
            (String::new(), "5 B".into(), "2 KiB".into())
        );
        assert_eq!(when(Some("äääääTäääääääää")), "äääääTäääääääää");
    }
}
