//! What the errors of SQLite mean.

use sqlx::Error;

use rockbot_store::StoreError;

// Primary result codes, https://www.sqlite.org/rescode.html
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;

/// What an error means when nothing was changed.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn explain(error: Error) -> StoreError {
    match &error {
        Error::PoolClosed => StoreError::Closed,
        Error::PoolTimedOut => unavailable("all connections to the file are busy"),
        Error::WorkerCrashed | Error::Io(_) => unavailable(&error.to_string()),
        Error::Database(_) => explain_code(primary_code(&error), &error),
        _ => StoreError::Unusable { reason: error.to_string() },
    }
}

/// What an error means when it came instead of the answer to a commit.
pub(super) fn explain_commit(error: Error) -> StoreError {
    let is_open =
        matches!(error, Error::WorkerCrashed | Error::Io(_)) || primary_code(&error) == Some(IOERR);
    if is_open { StoreError::Unconfirmed { reason: error.to_string() } } else { explain(error) }
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(primary_code(error), Some(BUSY | LOCKED))
}

fn explain_code(code: Option<i32>, error: &Error) -> StoreError {
    match code {
        Some(BUSY | LOCKED) => {
            unavailable("another process has held the file for too long; find out which one")
        }
        Some(IOERR) => unavailable(&format!("{error}; look at the disk and its file system")),
        Some(FULL) => StoreError::Full { reason: "the disk has no room; free some".to_owned() },
        Some(READONLY) => unusable("the file is read-only; let this user write to it"),
        Some(CANTOPEN) => {
            unusable("the file can't be opened; let this user write to it and to its folder")
        }
        Some(NOTADB) => unusable("the file is not a SQLite database; choose another path"),
        Some(CORRUPT) => unusable("the file is damaged; restore a copy of it, or remove it"),
        _ => StoreError::Unusable { reason: error.to_string() },
    }
}

fn primary_code(error: &Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable { reason: reason.to_owned() }
}

fn unusable(reason: &str) -> StoreError {
    StoreError::Unusable { reason: reason.to_owned() }
}
