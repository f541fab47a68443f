//! Validation of the exporter's headers, such as a tenant's key.
//!
//! The exporter reads them from the variables of OpenTelemetry's
//! [specification](https://opentelemetry.io/docs/specs/otel/protocol/exporter/) and drops malformed
//! entries silently; a process refuses to start with them.

use std::env;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// A malformed header in a variable. Its text may be a secret and is not shown.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{variable}: entry {position} is not a header; write name=value, separated by commas, with other \
     characters percent-encoded"
)]
pub(super) struct MalformedHeader {
    variable: &'static str,
    position: usize,
}

/// Validates the headers in the environment.
pub(super) fn validate() -> Result<(), MalformedHeader> {
    for variable in VARIABLES {
        let Some(text) = env::var_os(variable) else { continue };
        let malformed = text.to_str().map_or(Some(1), first_malformed);
        if let Some(position) = malformed {
            return Err(MalformedHeader { variable, position });
        }
    }
    Ok(())
}

/// Returns the position, counted from 1, of the first malformed entry in `a=1,b=2`. Empty entries are
/// valid.
fn first_malformed(text: &str) -> Option<usize> {
    let is_valid = |entry: &str| entry.trim().is_empty() || is_header(entry);
    text.split(',').position(|entry| !is_valid(entry)).map(|position| position + 1)
}

fn is_header(entry: &str) -> bool {
    let Some((name, value)) = entry.split_once('=') else { return false };
    let value: Vec<u8> = percent_decode_str(value.trim()).collect();
    name.trim().parse::<HeaderName>().is_ok() && HeaderValue::from_bytes(&value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_with_percent_encoded_values() {
        for text in ["", "authorization=Basic%20dTpw, X-Tenant = one=two ,"] {
            assert_eq!(first_malformed(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_header_is_reported_by_position_only() {
        for text in ["a=1,secret", "a=1,b c=secret", "a=1,b=secret%0a"] {
            assert_eq!(first_malformed(text), Some(2), "{text}");
        }
        let error = MalformedHeader { variable: VARIABLES[1], position: 2 }.to_string();
        assert!(error.starts_with("OTEL_EXPORTER_OTLP_HEADERS: entry 2"), "{error}");
    }
}
