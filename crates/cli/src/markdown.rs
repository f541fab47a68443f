//! Markdown drawn for a terminal while it streams: headings, lists, quotes, rules, code fences, and inline
//! styles.
//!
//! Text is drawn as soon as its meaning is known. The beginning of a line is held back until it cannot
//! become a marker, and an opened inline style until it is closed or the line ends; a marker that is never
//! closed is printed as it is. Input must be free of control characters, see [`render::clean`].
//!
//! [`render::clean`]: crate::render::clean

mod block;
mod inline;

use anstyle::Style;

use self::{
    block::{Block, Fence},
    inline::{Inline, MAX_HELD_BYTES},
};

/// Indent of the lines in a code fence.
const CODE_INDENT: &str = "    ";
/// Width of a drawn rule, in columns.
const RULE_COLUMNS: usize = 24;

const DIM: Style = Style::new().dimmed();
const CODE: Style = anstyle::AnsiColor::Green.on_default();
const HEADING: Style = Style::new().bold();
const TITLE: Style = Style::new().bold().underline();

/// Draws one text.
#[derive(Debug, Default)]
pub(crate) struct MarkdownStream {
    /// Text that is not drawn yet, at most about [`MAX_HELD_BYTES`] between calls.
    pending: String,
    /// The open code fence.
    fence: Option<Fence>,
    position: Position,
}

/// Position of the next character.
#[derive(Debug, Default)]
enum Position {
    /// At the beginning of a line, whose block is not known.
    #[default]
    LineStart,
    /// In a line of a code fence.
    Code,
    /// In a line of text.
    Text(Inline),
}

impl MarkdownStream {
    /// Takes more of the text, and returns what can be drawn.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        self.draw(false)
    }

    /// Returns the rest of the text. The next text starts at the beginning of a line, outside of fences.
    pub(crate) fn finish(&mut self) -> String {
        let mut drawn = self.draw(true);
        if let Position::Text(inline) = &self.position {
            drawn.push_str(&inline.close());
        } else if matches!(self.position, Position::Code) {
            drawn.push_str(&CODE.render_reset().to_string());
        }
        *self = Self::default();
        drawn
    }

    fn draw(&mut self, is_complete: bool) -> String {
        let mut drawn = String::new();
        while !self.pending.is_empty() {
            let is_held = match &mut self.position {
                Position::LineStart => self.start_line(is_complete, &mut drawn),
                Position::Code => {
                    self.draw_code(&mut drawn);
                    false
                }
                Position::Text(inline) => {
                    let (taken, text) = inline.draw(&self.pending, is_complete);
                    drawn.push_str(&text);
                    self.pending.drain(..taken);
                    let ends = self.pending.starts_with('\n');
                    if ends {
                        drawn.push_str(&inline.close());
                        drawn.push('\n');
                        self.pending.drain(..1);
                        self.position = Position::LineStart;
                    }
                    !ends
                }
            };
            if is_held {
                break;
            }
        }
        drawn
    }

    /// Draws a line of a code fence, or the beginning of it.
    fn draw_code(&mut self, drawn: &mut String) {
        let end = self.pending.find('\n');
        let rest = match end {
            Some(end) => self.pending.split_off(end + 1),
            None => String::new(),
        };
        let line = std::mem::replace(&mut self.pending, rest);
        drawn.push_str(line.trim_end_matches('\n'));
        if end.is_some() {
            drawn.push_str(&format!("{CODE:#}\n"));
            self.position = Position::LineStart;
        }
    }

    /// Draws the marker at the beginning of a line. Returns `true` if more text is needed to recognize it.
    fn start_line(&mut self, is_complete: bool, drawn: &mut String) -> bool {
        let is_whole = is_complete || self.pending.len() > MAX_HELD_BYTES;
        if let Some(fence) = &self.fence {
            let Some(closes) = fence.closes(&self.pending, is_whole) else { return true };
            if let Some(length) = closes {
                self.pending.drain(..length);
                self.fence = None;
            } else {
                drawn.push_str(&format!("{CODE_INDENT}{CODE}"));
                self.position = Position::Code;
            }
            return false;
        }
        let Some((length, block)) = Block::parse(&self.pending, is_whole) else { return true };
        let marker = self.pending.drain(..length).collect::<String>();
        let style = match block {
            Block::Fence { fence, language } => {
                self.fence = Some(fence);
                if !language.is_empty() {
                    drawn.push_str(&format!("{CODE_INDENT}{DIM}{language}{DIM:#}\n"));
                }
                return false;
            }
            Block::Rule => {
                drawn.push_str(&format!("{DIM}{}{DIM:#}\n", "─".repeat(RULE_COLUMNS)));
                return false;
            }
            Block::Heading(1) => TITLE,
            Block::Heading(_) => HEADING,
            Block::Bullet { indent } => {
                drawn.push_str(&format!("{}• ", " ".repeat(indent)));
                Style::new()
            }
            Block::Quote => {
                drawn.push_str(&format!("{DIM}│{DIM:#} "));
                DIM
            }
            Block::Text => {
                drawn.push_str(&marker);
                Style::new()
            }
        };
        let inline = Inline::new(style);
        drawn.push_str(&inline.open());
        self.position = Position::Text(inline);
        false
    }
}

#[cfg(test)]
mod tests;
