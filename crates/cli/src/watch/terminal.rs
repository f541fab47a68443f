//! The terminal in raw mode with the alternate screen, restored on every exit path.

use std::io::{self, Write};

use ratatui::{DefaultTerminal, Frame};

/// A terminal in raw mode. Dropping it restores the terminal; a panic restores it before its message
/// is printed.
pub(super) struct TerminalGuard(DefaultTerminal);

impl TerminalGuard {
    pub(super) fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init();
        if terminal.is_err() {
            // The initialization may be partly done.
            let _ = ratatui::try_restore();
        }
        terminal.map(Self)
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(render).map(drop)
    }

    /// Sends a sequence that draws nothing.
    pub(super) fn send(&mut self, sequence: &str) -> io::Result<()> {
        let backend = self.0.backend_mut();
        backend.write_all(sequence.as_bytes())?;
        Write::flush(backend)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
        let _ = self.0.show_cursor();
    }
}
