//! Requests to an agent, in the part that both bindings share.

use axum::{
    Extension,
    extract::{FromRequestParts, Path, RawQuery},
    http::{HeaderMap, HeaderValue, request::Parts},
    response::Response,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{caller::Caller, error::A2aError};
use crate::{guard::Refusal, identity::Identity, parts::GatewayParts};

/// Header and parameter with the version of the protocol.
const VERSION: &str = "a2a-version";

/// A request to an agent, without its body.
pub(super) struct AgentRequest {
    identity: Identity,
    /// The name of the agent in the path.
    agent: String,
    pub(super) headers: HeaderMap,
    query: Option<String>,
}

/// The first parameter of every path.
#[derive(Debug, Deserialize)]
struct AgentPath {
    agent: String,
}

impl<S: Send + Sync> FromRequestParts<S> for AgentRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        type Extracted = (Extension<Identity>, Path<AgentPath>, RawQuery, HeaderMap);
        let (Extension(identity), Path(AgentPath { agent }), RawQuery(query), headers) =
            Extracted::from_request_parts(parts, state).await?;
        Ok(Self { identity, agent, headers, query })
    }
}

impl AgentRequest {
    /// Returns the caller of the agent.
    ///
    /// # Errors
    /// When the agent does not exist, or the identity may not use it.
    pub(super) fn caller(&self, parts: &GatewayParts) -> Result<Caller, Refusal> {
        let agent = parts.agent_for(&self.identity, &self.agent).ok_or(Refusal::Path)?;
        Ok(Caller::new(self.identity.clone(), agent.clone()))
    }

    /// Checks the version of the protocol that the request names, in its header or its query.
    ///
    /// # Errors
    /// When it is missing, or another one.
    pub(super) fn check_version(&self) -> Result<(), A2aError> {
        let version = version(&self.headers, self.query.as_deref());
        let is_supported = version.is_some_and(|version| is_supported(&version));
        if is_supported { Ok(()) } else { Err(A2aError::version()) }
    }

    /// Returns the parameters of the query.
    pub(super) fn params(&self) -> Value {
        let query = self.query.as_deref().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let pairs = pairs.map(|(name, value)| (name.into_owned(), value.into_owned().into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    }
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
