//! The size of the terminal.

/// Rows and columns of a terminal that does not report its size.
const DEFAULT: (usize, usize) = (24, 80);

/// Returns the width in columns.
pub(crate) fn columns() -> usize {
    rows_and_columns().1
}

/// Returns the height in rows and the width in columns.
pub(crate) fn rows_and_columns() -> (usize, usize) {
    let size = crossterm::terminal::size().ok();
    let size = size.filter(|(columns, rows)| *columns > 0 && *rows > 0);
    size.map_or(DEFAULT, |(columns, rows)| (usize::from(rows), usize::from(columns)))
}
