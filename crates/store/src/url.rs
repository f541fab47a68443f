//! The address of a store.

use std::{fmt, path::PathBuf};

use secrecy::{ExposeSecret, SecretString};

use crate::postgres_address::PostgresAddress;

/// The address of a store: `memory:`, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
///
/// It may contain a password, which neither `Debug` nor `Display` shows.
#[derive(Debug, Clone)]
pub enum StoreUrl {
    /// In the memory of this process.
    Memory,
    /// In a SQLite file on this machine. A relative path starts at the current directory.
    Sqlite(PathBuf),
    /// In a PostgreSQL database. `?sslmode=verify-full` and other libpq parameters may follow.
    Postgres(SecretString),
}

/// Why a store address is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store address is invalid: {reason}")]
pub struct InvalidStoreUrl {
    reason: String,
}

impl StoreUrl {
    /// Parses an address, without connecting.
    ///
    /// # Errors
    /// When the address is invalid; the message never contains the password.
    pub fn parse(url: &SecretString) -> Result<Self, InvalidStoreUrl> {
        let invalid = |reason: String| InvalidStoreUrl { reason };
        let text = url.expose_secret();
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => Err(invalid("write `memory:` with nothing after it".into())),
            Some(("sqlite", path)) => sqlite_path(path).map(Self::Sqlite).map_err(invalid),
            Some(("postgres" | "postgresql", _)) => {
                PostgresAddress::parse(text).map_err(invalid)?;
                Ok(Self::Postgres(url.clone()))
            }
            _ => Err(invalid("it starts with none of memory:, sqlite: and postgres:".into())),
        }
    }

    /// Returns the reason why the address, the value of the configuration key `key`, must not be used in
    /// production: the driver may send the password of PostgreSQL over a network without TLS. The variable
    /// `PGSSLMODE` applies as in the driver.
    #[must_use]
    pub fn unsafe_in_production(&self, key: &str) -> Option<String> {
        let Self::Postgres(url) = self else { return None };
        let address = PostgresAddress::parse(url.expose_secret()).ok()?;
        let default = std::env::var("PGSSLMODE").ok();
        (!address.is_protected(default.as_deref())).then(|| {
            format!(
                "{key}: PostgreSQL on another host without TLS is not permitted in production; append \
                 ?sslmode=verify-full or ?sslmode=require to the URL, or set service.profile = \
                 \"development\""
            )
        })
    }
}

/// Parses the path. Both `sqlite:PATH` and `sqlite://PATH` are common.
fn sqlite_path(path: &str) -> Result<PathBuf, String> {
    let path = path.strip_prefix("//").unwrap_or(path);
    match path {
        "" => Err("the path is missing; write sqlite:PATH".to_owned()),
        ":memory:" => Err("write `memory:` for an in-memory store".to_owned()),
        _ if path.ends_with('/') => Err("sqlite: takes the path of a file, not of a folder".into()),
        _ if path.contains('?') => Err("sqlite: takes a path and no parameters".to_owned()),
        _ => Ok(PathBuf::from(path)),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(path) => write!(f, "SQLite file {}", path.display()),
            Self::Postgres(url) => match PostgresAddress::parse(url.expose_secret()) {
                Ok(address) => write!(f, "PostgreSQL at {address}"),
                Err(_) => f.write_str("PostgreSQL"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<StoreUrl, InvalidStoreUrl> {
        StoreUrl::parse(&SecretString::from(url))
    }

    #[test]
    fn address_selects_store() {
        let shown = |url: &str| parse(url).unwrap().to_string();
        assert_eq!(shown("memory:"), "memory");
        assert_eq!(shown("sqlite:a/b.db"), "SQLite file a/b.db");
        assert_eq!(shown("sqlite:/a/b.db"), "SQLite file /a/b.db");
        assert_eq!(shown("sqlite:///a/b.db"), "SQLite file /a/b.db");
        assert_eq!(shown("postgres://me:pw@db:5433/rockbot"), "PostgreSQL at db:5433");
        assert_eq!(shown("postgresql://db/rockbot"), "PostgreSQL at db:5432");
    }

    #[test]
    fn invalid_address_error_names_expected_form() {
        for (url, advice) in [
            ("", "memory:"),
            ("redis://db", "sqlite:"),
            ("memory:x", "nothing after it"),
            ("sqlite:", "sqlite:PATH"),
            ("sqlite::memory:", "memory:"),
            ("sqlite:a/", "not of a folder"),
            ("sqlite:a?mode=ro", "no parameters"),
            ("postgres://db:port/x", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
            ("postgres://db/x?sslmode=maybe", "postgres://USER"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(advice), "{url}: {error}");
        }
    }

    #[test]
    fn password_is_never_displayed() {
        let url = "postgres://me:hunter2@db:5432/rockbot";
        let parsed = parse(url).unwrap();
        assert!(!format!("{parsed} {parsed:?}").contains("hunter2"));
        let broken = parse("postgres://me:hunter2@db:port/rockbot").unwrap_err();
        assert!(!format!("{broken} {broken:?}").contains("hunter2"));
    }
}
