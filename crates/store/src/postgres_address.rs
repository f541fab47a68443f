//! Validation of PostgreSQL URLs without a database driver.

use std::{fmt, net::IpAddr};

const EXPECTED: &str = "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special \
    characters percent-encoded";

const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 5432;

/// The values of `sslmode` in libpq.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// The values of `sslmode` with which the driver does not connect without TLS.
const SAFE_SSL_MODES: [&str; 3] = ["require", "verify-ca", "verify-full"];

/// Host, port and `sslmode` of a PostgreSQL server, without credentials.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PostgresAddress {
    host: String,
    port: u16,
    ssl_mode: Option<String>,
}

impl PostgresAddress {
    /// Parses the address in a URL. The driver validates the rest when it connects.
    ///
    /// # Errors
    /// When port, host or `sslmode` are invalid; the message never holds the password.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let invalid = |reason: &str| format!("{reason}; {EXPECTED}");
        let (_, rest) = url.split_once("://").ok_or_else(|| invalid("missing `//`"))?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = base.split('/').next().unwrap_or_default();
        let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
        let (host, port) = split_port(server).ok_or_else(|| invalid("invalid host"))?;
        let mut host = Some(host).filter(|host| !host.is_empty()).map(ToOwned::to_owned);
        let mut port = Some(port).filter(|port| !port.is_empty());
        let mut ssl_mode = None;
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "host" | "hostaddr" => host = Some(value.to_owned()),
                "port" => port = Some(value),
                "sslmode" | "ssl-mode" if !SSL_MODES.contains(&&*value.to_ascii_lowercase()) => {
                    return Err(invalid("unknown sslmode"));
                }
                "sslmode" | "ssl-mode" => ssl_mode = Some(value.to_ascii_lowercase()),
                _ => {}
            }
        }
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse);
        let port = port.map_err(|_| invalid("invalid port number"))?;
        Ok(Self { host: host.unwrap_or_else(|| DEFAULT_HOST.to_owned()), port, ssl_mode })
    }

    /// Returns whether the password is never sent over a network without TLS. Without an `sslmode` in the
    /// URL, `default` applies.
    pub(crate) fn is_protected(&self, default: Option<&str>) -> bool {
        let mode = self.ssl_mode.as_deref().or(default).unwrap_or_default();
        self.is_local() || SAFE_SSL_MODES.contains(&mode)
    }

    /// Returns whether the server is a socket of this machine or on its loopback interface.
    fn is_local(&self) -> bool {
        let is_socket =
            self.host.starts_with('/') || self.host.to_ascii_lowercase().starts_with("%2f");
        let is_loopback = || self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        is_socket || self.host == DEFAULT_HOST || is_loopback()
    }
}

/// Splits a server into host and port, either of which may be empty.
fn split_port(server: &str) -> Option<(&str, &str)> {
    if let Some(rest) = server.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return if port.is_empty() {
            Some((host, ""))
        } else {
            Some((host, port.strip_prefix(':')?))
        };
    }
    let (host, port) = server.split_once(':').unwrap_or((server, ""));
    host.chars().all(|c| !c.is_whitespace() && !c.is_control()).then_some((host, port))
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(PostgresAddress::parse(url).unwrap().to_string(), expected, "{url}");
    }

    #[test]
    fn address_is_parsed_from_authority_or_parameters() {
        check("postgres://me:p%40ss@db:5433/rockbot", "db:5433");
        check("postgres://db", "db:5432");
        check("postgres:///rockbot", "localhost:5432");
        check("postgres://[::1]:5433/rockbot", "::1:5433");
        check("postgres://me@/rockbot?host=/run/postgresql&port=5434", "/run/postgresql:5434");
        check("postgres://db/rockbot?sslmode=verify-full", "db:5432");
    }

    #[test]
    fn remote_server_without_required_tls_is_unprotected() {
        let is_protected =
            |url, default| PostgresAddress::parse(url).unwrap().is_protected(default);
        for url in [
            "postgres:///rockbot",
            "postgres://[::1]/rockbot",
            "postgres://127.0.0.1/rockbot",
            "postgres://me@/rockbot?host=/run/postgresql",
            "postgres://db/rockbot?sslmode=require",
            "postgres://db/rockbot?sslmode=VERIFY-FULL",
        ] {
            assert!(is_protected(url, Some("disable")), "{url}");
        }
        for url in ["postgres://db/rockbot", "postgres://db/rockbot?sslmode=prefer"] {
            assert!(!is_protected(url, None), "{url}");
        }
        assert!(is_protected("postgres://db/rockbot", Some("require")));
        assert!(!is_protected("postgres://db/rockbot?sslmode=allow", Some("require")));
    }

    #[test]
    fn invalid_address_error_names_the_expected_form() {
        for url in [
            "postgres:db",
            "postgres://me:hunter2@db:port/x",
            "postgres://me:hunter2@db:70000/x",
            "postgres://me:hunter2@db/x?port=none",
            "postgres://me:hunter2@db/x?sslmode=maybe",
            "postgres://me:hunter2@[::1/x",
        ] {
            let error = PostgresAddress::parse(url).unwrap_err();
            assert!(error.ends_with(EXPECTED) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
