//! Classification of PostgreSQL errors.

use std::borrow::Cow;

use sqlx::{Error, error::DatabaseError};

use rockbot_store::StoreError;

/// Classifies an error after which nothing was changed.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn explain(error: Error) -> StoreError {
    let unavailable = |reason: String| StoreError::Unavailable { reason };
    match &error {
        Error::PoolClosed => StoreError::Closed,
        Error::PoolTimedOut => unavailable("no free connection to PostgreSQL within 10 s".into()),
        Error::Io(_) | Error::Protocol(_) | Error::Tls(_) | Error::WorkerCrashed => {
            unavailable(error.to_string())
        }
        Error::Database(_) => explain_state(&sql_state(&error), error.to_string()),
        _ => StoreError::Unusable { reason: error.to_string() },
    }
}

/// Classifies the error of a change. The server commits before it sends the response, so a connection
/// lost in between leaves the outcome unknown.
pub(super) fn explain_change(error: Error) -> StoreError {
    let lost = matches!(error, Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed)
        || sql_state(&error).starts_with("57P");
    if lost { StoreError::Unconfirmed { reason: error.to_string() } } else { explain(error) }
}

/// Classifies an SQLSTATE, see <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn explain_state(state: &str, reason: String) -> StoreError {
    match state {
        // Too many connections; a read-only standby; a lock timeout.
        "53300" | "25006" | "55P03" => StoreError::Unavailable { reason },
        // Connection lost, transaction rolled back, server shutting down or statement too slow.
        _ if ["08", "40", "57"].iter().any(|class| state.starts_with(class)) => {
            StoreError::Unavailable { reason }
        }
        // Out of disk space or memory.
        _ if state.starts_with("53") => {
            StoreError::Full { reason: format!("{reason}; free space on the database server") }
        }
        // Unknown user, wrong password, unknown database or schema, missing privilege.
        _ if ["28", "3D", "3F", "42501"].iter().any(|class| state.starts_with(class)) => {
            StoreError::Unusable {
                reason: format!("{reason}; check the address and the privileges of its user"),
            }
        }
        _ => StoreError::Unusable { reason },
    }
}

fn sql_state(error: &Error) -> String {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.map(Cow::into_owned).unwrap_or_default()
}
