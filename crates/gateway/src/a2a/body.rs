//! Bodies of requests: JSON of a bounded size in memory.

use axum::http::{HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::A2aError;

/// Header and parameter with the version of the protocol.
const VERSION: &str = "a2a-version";
/// Maximum number of opening brackets in a request, those in its texts included. An object takes about 600 bytes of
/// memory.
pub(super) const MAX_BRACKETS: usize = 50_000;

/// Parses a body.
///
/// # Errors
/// When it is no JSON, or has too many objects and arrays.
pub(super) fn parse(body: &[u8]) -> Result<Value, A2aError> {
    if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_BRACKETS {
        let error = format!("the request has more than {MAX_BRACKETS} opening brackets");
        return Err(A2aError::invalid_request(error));
    }
    serde_json::from_slice(body)
        .map_err(|error| A2aError::parse_error(format!("the body is no JSON: {error}")))
}

/// Reads parameters.
///
/// # Errors
/// When they have another form.
pub(super) fn params<T: DeserializeOwned>(params: Value) -> Result<T, A2aError> {
    serde_json::from_value(params).map_err(|error| A2aError::invalid(error.to_string()))
}

/// Checks the version of the protocol that a request names, in its header or its query.
///
/// # Errors
/// When it is missing, or another one.
pub(super) fn check_version(headers: &HeaderMap, query: Option<&str>) -> Result<(), A2aError> {
    let is_supported = version(headers, query).is_some_and(|version| is_supported(&version));
    if is_supported { Ok(()) } else { Err(A2aError::version()) }
}

fn version(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let header = headers.get(VERSION).and_then(|version: &HeaderValue| version.to_str().ok());
    if let Some(version) = header.filter(|version| !version.is_empty()) {
        return Some(version.to_owned());
    }
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(VERSION));
    named.next().map(|(_, version)| version.into_owned())
}

/// Returns whether a version is 1.0. The number of a patch has no meaning.
fn is_supported(version: &str) -> bool {
    let mut numbers = version.trim().split('.');
    (numbers.next(), numbers.next()) == (Some("1"), Some("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_header_and_query() {
        let none = HeaderMap::new();
        let headers =
            HeaderMap::from_iter([(VERSION.parse().unwrap(), HeaderValue::from_static("1.0"))]);
        assert_eq!(version(&headers, None).as_deref(), Some("1.0"));
        assert_eq!(version(&none, Some("a=b&A2A-Version=1.0")).as_deref(), Some("1.0"));
        assert_eq!(version(&none, None), None);
        for (version, expected) in
            [("1.0", true), ("1.0.1", true), ("0.3", false), ("1", false), ("10.0", false)]
        {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }
}
