//! Bodies of requests: JSON of a bounded size in memory.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::A2aError;

/// Maximum number of opening brackets in a request, those in its texts included. An object takes about 600 bytes of
/// memory.
pub(super) const MAX_BRACKETS: usize = 50_000;

/// Parses a body.
///
/// # Errors
/// When it is not JSON, or has too many objects and arrays.
pub(super) fn parse(body: &[u8]) -> Result<Value, A2aError> {
    if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_BRACKETS {
        let error = format!("the request has more than {MAX_BRACKETS} opening brackets");
        return Err(A2aError::invalid_request(error));
    }
    serde_json::from_slice(body)
        .map_err(|error| A2aError::parse_error(format!("the body is not JSON: {error}")))
}

/// Reads parameters.
///
/// # Errors
/// When they have another form.
pub(super) fn params<T: DeserializeOwned>(params: Value) -> Result<T, A2aError> {
    serde_json::from_value(params).map_err(|error| A2aError::invalid(error.to_string()))
}
