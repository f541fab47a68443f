//! Where the headings, the paragraphs and the code fences of a text begin.
//!
//! One pass over the lines, linear whatever the text is: it comes from outside and may have many
//! megabytes.

use std::ops::Range;

/// Headings below this level structure nothing here.
const DEEPEST: usize = 3;
/// The longest title, in characters.
const MAX_TITLE_CHARS: usize = 120;
/// The most headings of a text. Those after them are text: nobody reads an outline that long, and
/// a text may have nothing but headings.
const MOST_HEADINGS: usize = 4096;

/// A place where a text may be split. The smaller, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// A heading of that level.
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
    /// Where it begins, in bytes.
    pub(super) at: usize,
    /// The same in characters.
    chars: usize,
    /// The same in lines, from 1.
    line: usize,
}

/// Where a text may be split.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// In order, one for each place at most.
    pub(super) breaks: Vec<(usize, Level)>,
    pub(super) headings: Vec<Heading>,
}

/// An open code fence.
struct Fence {
    mark: char,
    length: usize,
}

impl Structure {
    pub(super) fn of(text: &str) -> Self {
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
                    let has_room = structure.headings.len() < MOST_HEADINGS;
                    let heading = heading(content).filter(|_| has_room);
                    let own = match &heading {
                        Some((level, _)) => Some(Level::Heading(*level)),
                        None => fence.as_ref().map(|_| Level::Fence),
                    };
                    if let Some(level) = [own, next.take()].into_iter().flatten().min() {
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
        // Backticks in the rest make it code within a line.
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
    if !(1..=DEEPEST).contains(&level) || !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return None;
    }
    let title = rest.trim().trim_end_matches('#').trim_end();
    Some((u8::try_from(level).ok()?, title.chars().take(MAX_TITLE_CHARS).collect()))
}

/// The line without its indentation; none when that makes it code.
fn unindented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() < 4).then_some(rest)
}

/// What lies below a heading, deeper headings included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// 1 to 3.
    pub level: u8,
    /// The heading, at most 120 characters of it.
    pub title: String,
    /// Its bytes in the text, the heading included.
    pub bytes: Range<usize>,
    /// Its size in characters, the heading included.
    pub chars: usize,
    /// The line of the heading, from 1.
    pub line: usize,
}

/// The sections of a text in order, at most 4,096; the last one has the rest. None without a heading
/// outside code fences.
#[must_use]
pub fn sections(text: &str) -> Vec<Section> {
    let headings = Structure::of(text).headings;
    // Where the text ends only when there is something to end.
    let chars = if headings.is_empty() { 0 } else { text.chars().count() };
    let mut sections: Vec<Section> = Vec::with_capacity(headings.len());
    let mut open: Vec<usize> = Vec::with_capacity(DEEPEST);
    for heading in headings {
        while let Some(last) = open.pop_if(|last| sections[*last].level >= heading.level) {
            end(&mut sections[last], heading.at, heading.chars);
        }
        open.push(sections.len());
        // Until it ends, it begins there and has so many characters before it.
        let Heading { level, title, at, chars, line } = heading;
        sections.push(Section { level, title, bytes: at..at, chars, line });
    }
    for last in open {
        end(&mut sections[last], text.len(), chars);
    }
    sections
}

fn end(section: &mut Section, at: usize, chars: usize) {
    section.bytes.end = at;
    section.chars = chars - section.chars;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_a_heading_of_markdown() {
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
    fn a_section_ends_where_its_like_begins() {
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
    fn headings_after_the_most_are_text() {
        let text = "#\n".repeat(MOST_HEADINGS + 1000);
        let structure = Structure::of(&text);
        assert_eq!((structure.headings.len(), structure.breaks.len()), (4096, 4096));
        let sections = sections(&text);
        assert_eq!(sections.last().map(|last| last.chars), Some(2 * 1001));
        let chunks = crate::chunk::chunks(&text, 1000);
        assert!(chunks.iter().all(|chunk| chunk.chars.len() <= 1000));
        assert_eq!(chunks.iter().map(|chunk| chunk.of(&text)).collect::<String>(), text);
    }

    #[test]
    fn a_fence_ends_with_as_many_marks_of_its_kind() {
        let text = "````\n```\n# code\n````\n# A\n~~~\n```\n# code\n~~~\n# B\n`` `a` ```\n# C\n";
        let titles: Vec<_> = sections(text).into_iter().map(|section| section.title).collect();
        assert_eq!(titles, ["A", "B", "C"]);
    }
}
