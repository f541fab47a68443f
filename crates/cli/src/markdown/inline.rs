//! Inline styles: emphasis, strong text, and code.

use anstyle::Style;

use super::CODE;

/// Text that is held back for a closing marker, in bytes; longer text is drawn with its opening marker.
pub(super) const MAX_HELD_BYTES: usize = 1024;
/// Styles within each other.
const MAX_DEPTH: usize = 4;

/// The inline text of one line.
#[derive(Debug)]
pub(super) struct Inline {
    /// Style of the line.
    base: Style,
    /// The last drawn character.
    previous: Option<char>,
}

/// Text at a marker.
enum Found {
    /// A span with the length of its markers and its content, in bytes.
    Span { marker: usize, content: usize },
    /// Characters without a meaning, with their length in bytes.
    Literal(usize),
    /// More text is needed.
    Open,
}

impl Inline {
    pub(super) fn new(base: Style) -> Self {
        Self { base, previous: None }
    }

    /// Returns the sequence that starts the style of the line.
    pub(super) fn open(&self) -> String {
        self.base.render().to_string()
    }

    /// Returns the sequence that ends it.
    pub(super) fn close(&self) -> String {
        self.base.render_reset().to_string()
    }

    /// Draws text up to the end of the line. Returns the number of bytes that were drawn; the others need
    /// more text.
    pub(super) fn draw(&mut self, text: &str, is_complete: bool) -> (usize, String) {
        let end = text.find('\n');
        let is_complete = is_complete || end.is_some();
        let line = &text[..end.unwrap_or(text.len())];
        let is_whole = is_complete || line.len() > MAX_HELD_BYTES;
        let mut drawn = String::new();
        let taken = spans(line, is_whole, self.base, &mut self.previous, 0, &mut drawn);
        (taken, drawn)
    }
}

/// Draws spans, and returns the number of drawn bytes.
fn spans(
    text: &str,
    is_whole: bool,
    base: Style,
    previous: &mut Option<char>,
    depth: usize,
    drawn: &mut String,
) -> usize {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        // Bounds the search for closing markers.
        let near = &rest[..rest.floor_char_boundary(2 * MAX_HELD_BYTES)];
        let found = match c {
            '`' => code(near, is_whole),
            '*' | '_' if depth < MAX_DEPTH => emphasis(near, c, *previous, is_whole),
            '\\' => match rest[1..].chars().next() {
                Some(next) if next.is_ascii_punctuation() => {
                    drawn.push(next);
                    *previous = Some(next);
                    at += 2;
                    continue;
                }
                None if !is_whole => Found::Open,
                _ => Found::Literal(1),
            },
            _ => Found::Literal(c.len_utf8()),
        };
        match found {
            Found::Open => return at,
            Found::Literal(length) => {
                drawn.push_str(&rest[..length]);
                *previous = rest[..length].chars().next_back();
                at += length;
            }
            Found::Span { marker, content } => {
                let inner = &rest[marker..marker + content];
                let style = style(base, c, marker);
                drawn.push_str(&format!("{base:#}{style}"));
                if c == '`' {
                    // A space next to the marker only separates backticks.
                    let trimmed = inner.strip_prefix(' ').and_then(|one| one.strip_suffix(' '));
                    drawn.push_str(trimmed.filter(|one| !one.trim().is_empty()).unwrap_or(inner));
                } else {
                    let mut before = Some(c);
                    spans(inner, true, style, &mut before, depth + 1, drawn);
                }
                drawn.push_str(&format!("{style:#}{base}"));
                *previous = Some(c);
                at += 2 * marker + content;
            }
        }
    }
    at
}

fn style(base: Style, marker: char, length: usize) -> Style {
    match (marker, length) {
        ('`', _) => CODE,
        (_, 1) => base.italic(),
        (_, 2) => base.bold(),
        _ => base.bold().italic(),
    }
}

fn run(text: &str, marker: char) -> usize {
    text.chars().take_while(|c| *c == marker).count()
}

/// Recognizes a span of code: it ends at a run of as many backticks.
fn code(rest: &str, is_whole: bool) -> Found {
    let marker = run(rest, '`');
    if marker == rest.len() {
        return if is_whole { Found::Literal(marker) } else { Found::Open };
    }
    let mut at = marker;
    while let Some(next) = rest[at..].find('`') {
        let length = run(&rest[at + next..], '`');
        let ends = at + next + length == rest.len();
        if length == marker && (is_whole || !ends) {
            return Found::Span { marker, content: at + next - marker };
        }
        at += next + length;
    }
    if is_whole { Found::Literal(marker) } else { Found::Open }
}

/// Recognizes emphasis. Its markers touch its text, and those of `_` do not touch other words.
fn emphasis(rest: &str, c: char, previous: Option<char>, is_whole: bool) -> Found {
    let marker = run(rest, c);
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let Some(first) = rest[marker..].chars().next() else {
        return if is_whole { Found::Literal(marker) } else { Found::Open };
    };
    if marker > 3 || first.is_whitespace() || (c == '_' && is_word(previous)) {
        return Found::Literal(marker);
    }
    let mut at = marker;
    while let Some(next) = rest[at..].find(c) {
        let start = at + next;
        let length = run(&rest[start..], c);
        let after = rest[start + length..].chars().next();
        if after.is_none() && !is_whole {
            return Found::Open;
        }
        let before = rest[..start].chars().next_back();
        let closes =
            before.is_some_and(|before| !before.is_whitespace()) && !(c == '_' && is_word(after));
        if closes && length == marker {
            return Found::Span { marker, content: start - marker };
        }
        at = start + length;
    }
    if is_whole { Found::Literal(marker) } else { Found::Open }
}
