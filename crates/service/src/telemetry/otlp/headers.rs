//! Headers that a collector wants, such as the key of a tenant, from the variables of OpenTelemetry's
//! [specification](https://opentelemetry.io/docs/specs/otel/protocol/exporter/).

use std::env;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// The more particular one first; the other is not asked when it is there.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// A variable with headers that can't be sent. What is in it is secret and not told.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{variable}: entry {place} is no header; write name=value, with commas between and %XX for what \
     can't be written"
)]
pub struct UnusableHeaders {
    variable: &'static str,
    place: usize,
}

/// What the environment asks for.
pub(in super::super) fn configured() -> Result<HeaderMap, UnusableHeaders> {
    // An empty one is as good as none.
    let text = |variable| env::var_os(variable).filter(|text| !text.is_empty());
    let set = VARIABLES.into_iter().find_map(|variable| Some((variable, text(variable)?)));
    let Some((variable, text)) = set else { return Ok(HeaderMap::new()) };
    let headers = text.to_str().map_or(Err(1), parse);
    headers.map_err(|place| UnusableHeaders { variable, place })
}

/// The headers in `a=1,b=2`, or which entry is none, counted from 1.
fn parse(text: &str) -> Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    for (place, entry) in text.split(',').enumerate() {
        // A comma too many, and an empty variable.
        if !entry.trim().is_empty() {
            let (name, value) = header(entry).ok_or(place + 1)?;
            headers.append(name, value);
        }
    }
    Ok(headers)
}

fn header(entry: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = entry.split_once('=')?;
    let value: Vec<u8> = percent_decode_str(value.trim()).collect();
    let mut value = HeaderValue::from_bytes(&value).ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_values_that_may_be_encoded() {
        let headers = parse("authorization=Basic%20dTpw, X-Tenant = one=two ,").unwrap();
        assert_eq!(headers["authorization"], "Basic dTpw");
        assert_eq!(headers["x-tenant"], "one=two");
        assert_eq!(headers.len(), 2);
        assert!(!format!("{headers:?}").contains("dTpw"));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_header_is_told_by_its_place_alone() {
        for text in ["a=1,secret", "a=1,b c=secret", "a=1,b=secret%0a"] {
            assert_eq!(parse(text).unwrap_err(), 2, "{text}");
        }
        let told = UnusableHeaders { variable: VARIABLES[1], place: 2 }.to_string();
        assert!(told.starts_with("OTEL_EXPORTER_OTLP_HEADERS: entry 2 is no header"), "{told}");
    }
}
