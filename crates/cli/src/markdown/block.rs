//! The marker at the beginning of a line.

/// Longest indent of a fence, in spaces.
const MAX_FENCE_INDENT: usize = 3;

/// An open code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence {
    marker: char,
    length: usize,
}

/// The kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// The first line of a code fence; its whole line is the marker.
    Fence {
        /// The fence that closes it.
        fence: Fence,
        /// The language, or an empty text.
        language: String,
    },
    /// A horizontal rule; its whole line is the marker.
    Rule,
    /// A heading with its level, 1 to 6.
    Heading(usize),
    /// An item of a list.
    Bullet {
        /// Indent in columns.
        indent: usize,
    },
    /// A quoted line.
    Quote,
    /// Any other line; the marker is its indent.
    Text,
}

impl Block {
    /// Parses the beginning of a line. Returns the length of the marker in bytes, or `None` if more text is
    /// needed. A whole line, or one that is too long to wait for, is always recognized.
    pub(super) fn parse(text: &str, is_whole: bool) -> Option<(usize, Self)> {
        let rest = text.trim_start_matches(' ');
        let indent = text.len() - rest.len();
        let end = rest.find('\n');
        let is_whole = is_whole || end.is_some();
        let line = &rest[..end.unwrap_or(rest.len())];
        let whole_line = indent + line.len() + usize::from(end.is_some());
        let plain = Some((indent, Self::Text));
        let Some(first) = line.chars().next() else { return if is_whole { plain } else { None } };
        let run = line.chars().take_while(|c| *c == first).count();
        let after = line[run * first.len_utf8()..].chars().next();
        let is_open = after.is_none() && !is_whole;
        match first {
            '`' | '~' if indent <= MAX_FENCE_INDENT => {
                if run >= 3 && !line[run..].contains('`') {
                    let fence = Fence { marker: first, length: run };
                    let language = line[run..].trim().to_owned();
                    return is_whole.then_some((whole_line, Self::Fence { fence, language }));
                }
                if is_open { None } else { plain }
            }
            '#' if run <= 6 => match after {
                Some(' ') => {
                    let spaces = line[run..].len() - line[run..].trim_start_matches(' ').len();
                    Some((indent + run + spaces, Self::Heading(run)))
                }
                None if !is_whole => None,
                _ => plain,
            },
            '-' | '*' | '_' if line.chars().all(|c| c == first || c == ' ') && run != 1 => {
                match (is_whole, run >= 3) {
                    (false, _) => None,
                    (true, true) => Some((whole_line, Self::Rule)),
                    (true, false) => plain,
                }
            }
            '-' | '*' | '+' if run == 1 => match after {
                Some(' ') => Some((indent + 2, Self::Bullet { indent })),
                None if !is_whole => None,
                _ => plain,
            },
            '>' => {
                let space = usize::from(line[1..].starts_with(' '));
                if line.len() == 1 && !is_whole {
                    None
                } else {
                    Some((indent + 1 + space, Self::Quote))
                }
            }
            _ => plain,
        }
    }
}

impl Fence {
    /// Returns whether a line closes the fence, with the length of the line in bytes. The outer `None` means
    /// that more text is needed.
    pub(super) fn closes(&self, text: &str, is_whole: bool) -> Option<Option<usize>> {
        let end = text.find('\n');
        let line = &text[..end.unwrap_or(text.len())];
        let rest = line.trim_start_matches(' ');
        let marks = rest.trim_end();
        let may_close =
            line.len() - rest.len() <= MAX_FENCE_INDENT && marks.chars().all(|c| c == self.marker);
        if !may_close {
            return Some(None);
        }
        if end.is_none() && !is_whole {
            return None;
        }
        let closes = marks.chars().count() >= self.length;
        Some(closes.then_some(line.len() + usize::from(end.is_some())))
    }
}
