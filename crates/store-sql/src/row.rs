//! Conversion of database rows to entries.

use futures_util::{Stream, StreamExt};

use rockbot_store::{Entry, Key, MAX_PAGE_BYTES, StoreError, Timestamp, Version};

/// Value, version and expiry time.
pub(crate) type EntryRow = (Vec<u8>, i64, Option<i64>);
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
        let key = Key::parse(&key).map_err(|error| StoreError::Unusable {
            reason: format!("a table has a row of another program: {error}; remove that row"),
        })?;
        bytes += value.len();
        page.push((key, entry((value, version, expires_at))));
    }
    Ok(page)
}
