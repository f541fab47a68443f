//! Bodies and queries of requests.

use std::{collections::HashMap, ops::RangeInclusive};

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, StatusCode, request::Parts},
};
use serde::de::DeserializeOwned;

use super::problem::Problem;
use crate::guard::is_json;

/// A JSON body. It must have the content type `application/json`, so that no form of another page can send
/// it.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "send the body as application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "unsupported_media_type", detail).not_executed());
        }
        let body = Bytes::from_request(request, state).await.map_err(|error| {
            let detail = format!("{error}; send a smaller body");
            Problem::new(error.status(), "too_large", detail).not_executed()
        })?;
        let value = serde_json::from_slice(&body).map_err(|error| {
            Problem::invalid(format!("the body is invalid: {error}")).not_executed()
        })?;
        Ok(Self(value))
    }
}

/// The parameters of a query. Of a repeated one, the last counts.
#[derive(Debug, Default)]
pub(crate) struct QueryMap(HashMap<String, String>);

/// Longest query, in bytes.
const MAX_QUERY_BYTES: usize = 4096;

impl QueryMap {
    fn parse(query: &str) -> Self {
        Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a number from 1 to `max`; `default` without the parameter.
    pub(crate) fn number(&self, name: &str, default: u32, max: u32) -> Result<u32, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| Problem::invalid(format!("{name} must be a number from 1 to {max}")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for QueryMap {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        if query.len() > MAX_QUERY_BYTES {
            let detail = format!("the query exceeds {MAX_QUERY_BYTES} bytes; shorten it");
            return Err(Problem::invalid(detail));
        }
        Ok(Self::parse(query))
    }
}

/// Lengths of an idempotency key, in bytes.
const KEY_BYTES: RangeInclusive<usize> = 8..=128;

/// Returns the idempotency key of a request.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<String, Problem> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let is_valid =
        KEY_BYTES.contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid {
        return Ok(key.to_owned());
    }
    Err(Problem::new(
        StatusCode::BAD_REQUEST,
        "missing_key",
        "send the header Idempotency-Key with 8 to 128 visible ASCII characters, the same for each attempt",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_numbers_are_bounded() {
        let query = QueryMap::parse("limit=5&filter=agent%3Aa+tool%3Ab");
        assert_eq!(query.get("filter"), Some("agent:a tool:b"));
        assert_eq!(query.number("limit", 50, 200).unwrap(), 5);
        assert_eq!(query.number("other", 50, 200).unwrap(), 50);
        for text in ["0", "201", "-1", "x", ""] {
            let query = QueryMap::parse(&format!("limit={text}"));
            assert!(query.number("limit", 50, 200).is_err(), "{text}");
        }
    }
}
