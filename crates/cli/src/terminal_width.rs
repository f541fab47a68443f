//! The width of the terminal.

/// Width of a terminal that does not tell its width.
const DEFAULT_COLUMNS: usize = 80;

/// Returns the width in columns.
pub(crate) fn columns() -> usize {
    let size = crossterm::terminal::size().ok().filter(|(columns, _)| *columns > 0);
    size.map_or(DEFAULT_COLUMNS, |(columns, _)| usize::from(columns))
}
