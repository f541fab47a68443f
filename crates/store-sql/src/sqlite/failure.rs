//! Classification of SQLite errors.

use sqlx::Error;

use rockbot_store::StoreError;

// Primary result codes, see https://www.sqlite.org/rescode.html
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;

/// Classifies an error after which nothing was changed.
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

/// Classifies the error of a commit.
pub(super) fn explain_commit(error: Error) -> StoreError {
    let is_unknown =
        matches!(error, Error::WorkerCrashed | Error::Io(_)) || primary_code(&error) == Some(IOERR);
    if is_unknown { StoreError::Unconfirmed { reason: error.to_string() } } else { explain(error) }
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(primary_code(error), Some(BUSY | LOCKED))
}

fn explain_code(code: Option<i32>, error: &Error) -> StoreError {
    match code {
        Some(BUSY | LOCKED) => {
            unavailable("another process has locked the file for too long; find and stop it")
        }
        Some(IOERR) => unavailable(&format!("{error}; check the disk and its file system")),
        Some(FULL) => StoreError::Full { reason: "the disk is full; free some space".to_owned() },
        Some(READONLY) => unusable("the file is read-only; make it writable for this user"),
        Some(CANTOPEN) => {
            unusable("cannot open the file; make it and its folder writable for this user")
        }
        Some(NOTADB) => unusable("the file is not a SQLite database; choose another path"),
        Some(CORRUPT) => unusable("the file is damaged; restore a backup, or remove it"),
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
