//! Structure of a text: headings, paragraphs and code fences.
//!
//! It is found in one pass over the lines, in linear time for any text: the text is untrusted and may
//! have many megabytes.

use std::ops::Range;

/// Deepest level of headings that is recognized.
const MAX_LEVEL: usize = 3;
/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 120;
/// Maximum number of headings. Further ones are treated as text: a longer outline is of no use, and a
/// text may consist only of headings.
const MAX_HEADINGS: usize = 4096;

/// A possible boundary of chunks. Smaller values are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Before a heading of this level.
    Heading(u8),
    /// After a blank line.
    Blank,
    /// Before or after a code fence.
    Fence,
}

/// A heading, `# ` to `### `.
#[derive(Debug, Clone)]
pub(super) struct Heading {
    pub(super) level: u8,
    pub(super) title: String,
    /// Start, in bytes.
    pub(super) at: usize,
    /// Start, in characters.
    chars: usize,
    /// Line, counted from 1.
    line: usize,
}

/// Headings and possible boundaries of a text.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// Boundaries in order, at most one per position.
    pub(super) breaks: Vec<(usize, Level)>,
    pub(super) headings: Vec<Heading>,
}

/// An open code fence.
struct Fence {
    mark: char,
    length: usize,
}

impl Structure {
    pub(super) fn parse(text: &str) -> Self {
        let mut structure = Self::default();
        let mut fence: Option<Fence> = None;
        let mut next = None;
        let (mut at, mut chars) = (0, 0);
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let content = line.trim_end_matches(['\n', '\r']);
            match &fence {
                Some(open) if open.is_closed_by(content) => {
                    (fence, next) = (None, Some(Level::Fence));
                }
                Some(_) => {}
                None if content.trim().is_empty() => next = Some(Level::Blank),
                None => {
                    fence = Fence::opened_by(content);
                    let is_below_limit = structure.headings.len() < MAX_HEADINGS;
                    let heading = heading(content).filter(|_| is_below_limit);
                    let own_level = match &heading {
                        Some((level, _)) => Some(Level::Heading(*level)),
                        None => fence.as_ref().map(|_| Level::Fence),
                    };
                    if let Some(level) = [own_level, next.take()].into_iter().flatten().min() {
                        structure.breaks.push((at, level));
                    }
                    if let Some((level, title)) = heading {
                        structure.headings.push(Heading {
                            level,
                            title,
                            at,
                            chars,
                            line: index + 1,
                        });
                    }
                }
            }
            at += line.len();
            chars += line.chars().count();
        }
        structure
    }
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let line = unindented(line)?;
        let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let rest = line.trim_start_matches(mark);
        let length = line.len() - rest.len();
        // Backticks in the rest make it inline code.
        (length >= 3 && (mark == '~' || !rest.contains(mark))).then_some(Self { mark, length })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        unindented(line).is_some_and(|line| {
            let rest = line.trim_start_matches(self.mark);
            line.len() - rest.len() >= self.length && rest.trim().is_empty()
        })
    }
}

fn heading(line: &str) -> Option<(u8, String)> {
    let line = unindented(line)?;
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    if !(1..=MAX_LEVEL).contains(&level) || !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return None;
    }
    let title = rest.trim().trim_end_matches('#').trim_end();
    Some((u8::try_from(level).ok()?, title.chars().take(MAX_TITLE_CHARS).collect()))
}

/// Removes the indentation. Returns `None` if the line is an indented code block.
fn unindented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() < 4).then_some(rest)
}

/// A heading and the text below it, including deeper headings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Level, 1 to 3.
    pub level: u8,
    /// Title, at most 120 characters.
    pub title: String,
    /// Byte range in the text, including the heading.
    pub bytes: Range<usize>,
    /// Size in characters, including the heading.
    pub chars: usize,
    /// Line of the heading, counted from 1.
    pub line: usize,
}

/// Returns the sections of a text in order, at most 4,096; the last one includes the rest. Empty if
/// there is no heading outside of code fences.
#[must_use]
pub fn sections(text: &str) -> Vec<Section> {
    let headings = Structure::parse(text).headings;
    // Counted only if there is a section to close.
    let chars = if headings.is_empty() { 0 } else { text.chars().count() };
    let mut sections: Vec<Section> = Vec::with_capacity(headings.len());
    let mut open: Vec<usize> = Vec::with_capacity(MAX_LEVEL);
    for heading in headings {
        while let Some(last) = open.pop_if(|last| sections[*last].level >= heading.level) {
            close(&mut sections[last], heading.at, heading.chars);
        }
        open.push(sections.len());
        // `chars` holds the number of preceding characters until the section is closed.
        let Heading { level, title, at, chars, line } = heading;
        sections.push(Section { level, title, bytes: at..at, chars, line });
    }
    for last in open {
        close(&mut sections[last], text.len(), chars);
    }
    sections
}

fn close(section: &mut Section, at: usize, chars: usize) {
    section.bytes.end = at;
    section.chars = chars - section.chars;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_headings_are_recognized() {
        for (line, expected) in [
            ("# A", Some((1, "A"))),
            ("   ### A # b ##", Some((3, "A # b"))),
            ("#", Some((1, ""))),
            ("#hashtag", None),
            ("#### deep", None),
            ("    # code", None),
            ("text # A", None),
        ] {
            let found = heading(line);
            assert_eq!(found.as_ref().map(|(level, title)| (*level, title.as_str())), expected);
        }
    }

    #[test]
    fn section_ends_at_next_heading_of_same_level() {
        let text = "# A\nü\n## B\nb\n### C\n## D\n# E\n";
        let found: Vec<_> = sections(text)
            .into_iter()
            .map(|section| (section.title, section.chars, section.line, text[section.bytes].len()))
            .collect();
        let title = str::to_owned;
        assert_eq!(
            found,
            [
                (title("A"), 24, 1, 25),
                (title("B"), 13, 3, 13),
                (title("C"), 6, 5, 6),
                (title("D"), 5, 6, 5),
                (title("E"), 4, 7, 4),
            ]
        );
        assert!(sections("```\n# A\n```\n").is_empty());
    }

    #[test]
    fn excess_headings_are_text() {
        let text = "#\n".repeat(MAX_HEADINGS + 1000);
        let structure = Structure::parse(&text);
        assert_eq!((structure.headings.len(), structure.breaks.len()), (4096, 4096));
        let sections = sections(&text);
        assert_eq!(sections.last().map(|last| last.chars), Some(2 * 1001));
        let chunks = crate::chunk::chunks(&text, 1000);
        assert!(chunks.iter().all(|chunk| chunk.chars.len() <= 1000));
        assert_eq!(chunks.iter().map(|chunk| chunk.slice(&text)).collect::<String>(), text);
    }

    #[test]
    fn fence_closes_with_matching_marks() {
        let text = "````\n```\n# code\n````\n# A\n~~~\n```\n# code\n~~~\n# B\n`` `a` ```\n# C\n";
        let titles: Vec<_> = sections(text).into_iter().map(|section| section.title).collect();
        assert_eq!(titles, ["A", "B", "C"]);
    }
}
