//! What the errors of PostgreSQL mean.

use std::borrow::Cow;

use sqlx::{Error, error::DatabaseError};

use rockbot_store::StoreError;

/// What an error means when nothing was changed.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn explain(error: Error) -> StoreError {
    let unavailable = |reason: String| StoreError::Unavailable { reason };
    match &error {
        Error::PoolClosed => StoreError::Closed,
        Error::PoolTimedOut => unavailable(
            "no connection to PostgreSQL was free or could be opened within ten seconds".into(),
        ),
        Error::Io(_) | Error::Protocol(_) | Error::Tls(_) | Error::WorkerCrashed => {
            unavailable(error.to_string())
        }
        Error::Database(_) => explain_state(&sql_state(&error), error.to_string()),
        _ => StoreError::Unusable { reason: error.to_string() },
    }
}

/// What an error means when it came instead of the answer to a change. The server commits before
/// its last word about a statement, so a connection lost in between tells nothing.
pub(super) fn explain_change(error: Error) -> StoreError {
    let lost = matches!(error, Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed)
        || sql_state(&error).starts_with("57P");
    if lost { StoreError::Unconfirmed { reason: error.to_string() } } else { explain(error) }
}

/// Classes of SQLSTATE, <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn explain_state(state: &str, reason: String) -> StoreError {
    match state {
        // Too many connections; a standby that takes no changes; a lock or a time-out.
        "53300" | "25006" | "55P03" => StoreError::Unavailable { reason },
        // Connection lost, transaction rolled back, server shutting down or statement too slow.
        _ if ["08", "40", "57"].iter().any(|class| state.starts_with(class)) => {
            StoreError::Unavailable { reason }
        }
        // Out of disk or memory.
        _ if state.starts_with("53") => {
            StoreError::Full { reason: format!("{reason}; make room on the database server") }
        }
        // No such user or password, database or schema; not allowed.
        _ if ["28", "3D", "3F", "42501"].iter().any(|class| state.starts_with(class)) => {
            StoreError::Unusable {
                reason: format!("{reason}; check the address and what its user may do"),
            }
        }
        _ => StoreError::Unusable { reason },
    }
}

fn sql_state(error: &Error) -> String {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.map(Cow::into_owned).unwrap_or_default()
}
