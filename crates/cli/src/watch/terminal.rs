//! The terminal while the watch has it: its own screen and every key, given back on every way out.

use std::io;

use ratatui::{DefaultTerminal, Frame};

/// A terminal that is taken. Dropping it gives it back; a panic does so before it is told.
pub(super) struct Taken(DefaultTerminal);

impl Taken {
    pub(super) fn take() -> io::Result<Self> {
        let taken = ratatui::try_init();
        if taken.is_err() {
            // It may have got half of the way.
            let _ = ratatui::try_restore();
        }
        taken.map(Self)
    }

    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(picture).map(drop)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
        let _ = self.0.show_cursor();
    }
}
