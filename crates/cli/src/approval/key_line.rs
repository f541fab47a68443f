//! A line of input that is typed key by key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest line, in bytes; further keys are ignored.
const MAX_LINE_BYTES: usize = 4 * 1024;

/// A line that is being typed.
#[derive(Debug, Default)]
pub(super) struct KeyLine(String);

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    /// The line is not complete.
    More,
    /// The line is complete.
    Enter,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D in an empty line, or the terminal is gone.
    EndOfInput,
}

impl KeyLine {
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Pressed::Interrupt,
            KeyCode::Char('d') if is_control && self.0.is_empty() => return Pressed::EndOfInput,
            // A line break that was typed before the terminal sent single keys.
            KeyCode::Char('j' | 'm') if is_control => return Pressed::Enter,
            KeyCode::Enter => return Pressed::Enter,
            KeyCode::Char('u') if is_control => self.0.clear(),
            KeyCode::Char('w') if is_control => {
                let kept = self.0.trim_end().rfind(' ').map_or(0, |space| space + 1);
                self.0.truncate(kept);
            }
            KeyCode::Backspace => {
                self.0.pop();
            }
            KeyCode::Char(c) if !is_control => return self.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Pressed::More
    }

    /// Inserts text. Line breaks in it become spaces: a paste decides nothing.
    pub(super) fn insert(&mut self, text: &str) -> Pressed {
        for c in text.chars() {
            if self.0.len() + c.len_utf8() > MAX_LINE_BYTES {
                break;
            }
            self.0.push(if c.is_control() { ' ' } else { c });
        }
        Pressed::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    #[test]
    fn keys_edit_the_line() {
        let mut line = KeyLine::default();
        line.insert("no thanks\nplease");
        assert_eq!(line.text(), "no thanks please");
        line.press(control('w'));
        assert_eq!(line.text(), "no thanks ");
        line.press(KeyEvent::from(KeyCode::Backspace));
        line.press(KeyEvent::from(KeyCode::Char('!')));
        assert_eq!(line.text(), "no thanks!");
        line.press(control('u'));
        assert_eq!(line.press(control('d')), Pressed::EndOfInput);
        assert_eq!(line.press(control('j')), Pressed::Enter);
        assert_eq!(line.press(control('c')), Pressed::Interrupt);
        line.insert(&"x".repeat(10_000));
        assert_eq!(line.text().len(), MAX_LINE_BYTES);
    }
}
