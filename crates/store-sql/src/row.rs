//! Conversion of database rows to entries.

use futures_util::{Stream, StreamExt};

use rockbot_store::{
    Entry, InvalidKey, Key, LogEntry, LogId, LogName, LogPosition, LogState, MAX_PAGE_BYTES,
    StoreError, Timestamp, Version,
};

/// Value, version and expiry time.
pub(crate) type EntryRow = (Vec<u8>, i64, Option<i64>);
/// Number and value of an entry of a log.
pub(crate) type LogEntryRow = (i64, Vec<u8>);
/// Name, id, first and next number, size in bytes and time of the last append of a log.
pub(crate) type LogRow = (String, i64, i64, i64, i64, i64);
/// Key, value, version and expiry time.
pub(crate) type KeyedRow = (String, Vec<u8>, i64, Option<i64>);

pub(crate) fn entry((value, version, expires_at): EntryRow) -> Entry {
    Entry {
        value: value.into(),
        version: Version::from_number(version),
        expires_at: expires_at.map(Timestamp::from_millis),
    }
}

/// Reads rows until the page is full. `explain` converts database errors.
pub(crate) async fn page(
    mut rows: impl Stream<Item = Result<KeyedRow, sqlx::Error>> + Unpin,
    explain: impl Fn(sqlx::Error) -> StoreError,
) -> Result<Vec<(Key, Entry)>, StoreError> {
    let mut page = Vec::new();
    let mut bytes = 0;
    while bytes < MAX_PAGE_BYTES
        && let Some(row) = rows.next().await
    {
        let (key, value, version, expires_at) = row.map_err(&explain)?;
        let key = Key::parse(&key).map_err(foreign_row)?;
        bytes += value.len();
        page.push((key, entry((value, version, expires_at))));
    }
    Ok(page)
}

/// Reads entries of a log until the page is full. `explain` converts database errors.
pub(crate) async fn log_page(
    mut rows: impl Stream<Item = Result<LogEntryRow, sqlx::Error>> + Unpin,
    explain: impl Fn(sqlx::Error) -> StoreError,
) -> Result<Vec<LogEntry>, StoreError> {
    let mut page = Vec::new();
    let mut bytes = 0;
    while bytes < MAX_PAGE_BYTES
        && let Some(row) = rows.next().await
    {
        let (number, value) = row.map_err(&explain)?;
        bytes += value.len();
        page.push(LogEntry { number: unsigned(number), value: value.into() });
    }
    Ok(page)
}

pub(crate) fn log_state(row: LogRow) -> Result<LogState, StoreError> {
    let (name, id, first, next, bytes, appended_at) = row;
    let (first, next) = (unsigned(first), unsigned(next));
    Ok(LogState {
        name: LogName::parse(&name).map_err(foreign_row)?,
        id: LogId::from_number(id),
        first,
        next,
        bytes: unsigned(bytes),
        entries: next.saturating_sub(first),
        appended_at: Timestamp::from_millis(appended_at),
    })
}

/// Converts the id and the next number of a log.
pub(crate) fn log_position((id, next): (i64, i64)) -> LogPosition {
    LogPosition { log: Some(LogId::from_number(id)), number: unsigned(next) }
}

/// Converts a number for a query. No column has a number that does not fit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number of a row, which is never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn foreign_row(error: InvalidKey) -> StoreError {
    StoreError::Unusable {
        reason: format!("a table has a row of another program: {error}; remove that row"),
    }
}
