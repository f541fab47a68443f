//! A target of push notifications, as clients write and read it.

use std::fmt;

use axum::http::HeaderValue;
use rockbot_contracts::MessageId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::super::{body, caller::Caller, error::A2aError, message::is_id};

const MAX_URL_BYTES: usize = 2048;
/// Longest token, and longest credentials, in bytes.
const MAX_SECRET_BYTES: usize = 4096;
const MAX_SCHEME_BYTES: usize = 64;

/// The parameters as sent. Unknown fields are ignored, as the protocol asks for; an empty text is absent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    id: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    authentication: Option<Authentication>,
}

/// Credentials in the header `Authorization`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Authentication {
    #[serde(default)]
    scheme: String,
    #[serde(default)]
    credentials: String,
}

/// A valid target that is not registered.
#[derive(Clone)]
pub(in super::super) struct NewPushTarget {
    url: Url,
    id: Option<String>,
    token: Option<String>,
    authentication: Option<Authentication>,
}

/// A registered target, as stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct PushTarget {
    pub(in super::super) id: String,
    pub(in super::super) url: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    authentication: Option<Authentication>,
}

impl NewPushTarget {
    /// Parses the configuration of a client.
    ///
    /// # Errors
    /// When it is malformed.
    pub(in super::super) fn parse(params: Value) -> Result<Self, A2aError> {
        let Wire { id, url, token, authentication } = body::params(params)?;
        let id = Some(id).filter(|id| !id.is_empty());
        if id.as_deref().is_some_and(|id| !is_id(id)) {
            let message = "the id of the configuration is too long, or has control characters";
            return Err(A2aError::invalid(message));
        }
        let parsed = Url::parse(&url).ok().filter(|_| url.len() <= MAX_URL_BYTES);
        let url = parsed.ok_or_else(|| {
            A2aError::invalid(format!("the url is no URL of at most {MAX_URL_BYTES} bytes"))
        })?;
        let token = Some(token).filter(|token| !token.is_empty());
        if token.as_deref().is_some_and(|token| !is_header(token)) {
            return Err(A2aError::invalid("the token is too long, or no value of a header"));
        }
        if authentication.as_ref().is_some_and(|authentication| !authentication.is_valid()) {
            return Err(A2aError::invalid(
                "authentication needs scheme and credentials that are values of a header",
            ));
        }
        Ok(Self { url, id, token, authentication })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the target of a task. Without an id, it gets one for its URL, so that a repeated request registers no
    /// second one.
    pub(super) fn into_target(self, caller: &Caller, task: &MessageId) -> PushTarget {
        let Self { url, id, token, authentication } = self;
        let url = String::from(url);
        let id = id.unwrap_or_else(|| caller.push_target(task, &url));
        PushTarget { id, url, token, authentication }
    }
}

impl PushTarget {
    /// Returns the configuration for its client.
    pub(in super::super) fn to_json(&self, task: &MessageId) -> Value {
        let mut config = json!({"taskId": task, "id": self.id, "url": self.url});
        if let Some(token) = &self.token {
            config["token"] = json!(token);
        }
        if let Some(authentication) = &self.authentication {
            config["authentication"] = json!(authentication);
        }
        config
    }

    /// Returns the token for the header of notifications.
    pub(in super::super) fn token(&self) -> Option<HeaderValue> {
        self.token.as_deref().and_then(secret)
    }

    /// Returns the value of the header `Authorization`.
    pub(in super::super) fn authorization(&self) -> Option<HeaderValue> {
        let Authentication { scheme, credentials } = self.authentication.as_ref()?;
        secret(&format!("{scheme} {credentials}"))
    }
}

impl Authentication {
    fn is_valid(&self) -> bool {
        let Self { scheme, credentials } = self;
        let is_scheme = (1..=MAX_SCHEME_BYTES).contains(&scheme.len())
            && scheme.bytes().all(|byte| byte.is_ascii_graphic());
        is_scheme && !credentials.is_empty() && is_header(credentials)
    }
}

fn is_header(value: &str) -> bool {
    value.len() <= MAX_SECRET_BYTES && HeaderValue::from_str(value).is_ok()
}

/// Returns the value of a header that is not logged.
fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

// The token and the path of the URL are secrets of the client.
impl fmt::Debug for NewPushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewPushTarget").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushTarget").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_targets_are_refused() {
        let url = "https://example.com/hook";
        let long = "x".repeat(MAX_SECRET_BYTES + 1);
        for config in [
            json!({}),
            json!({"url": "hook"}),
            json!({"url": format!("{url}/{}", "x".repeat(MAX_URL_BYTES))}),
            json!({"url": url, "id": "x".repeat(256)}),
            json!({"url": url, "id": "a\nb"}),
            json!({"url": url, "token": "a\r\nb: c"}),
            json!({"url": url, "token": long}),
            json!({"url": url, "authentication": {"scheme": "Bearer"}}),
            json!({"url": url, "authentication": {"scheme": "Bea rer", "credentials": "a"}}),
            json!({"url": url, "authentication": {"scheme": "Bearer", "credentials": "a\n"}}),
        ] {
            let error = NewPushTarget::parse(config.clone()).unwrap_err();
            assert_eq!(error.to_json()["code"], -32602, "{config}");
        }
    }

    #[test]
    fn headers_are_those_that_were_registered() {
        let authentication = json!({"scheme": "Bearer", "credentials": "c"});
        let config = json!({"url": "https://example.com", "id": "1", "token": "t",
            "authentication": authentication, "tenant": ""});
        let NewPushTarget { url, id, token, authentication } =
            NewPushTarget::parse(config).unwrap();
        let target = PushTarget { id: id.unwrap(), url: url.into(), token, authentication };
        assert_eq!(target.token().unwrap(), "t");
        assert_eq!(target.authorization().unwrap(), "Bearer c");
        assert!(target.authorization().unwrap().is_sensitive());
        let debug = format!("{target:?}");
        assert!(!debug.contains("example") && !debug.contains("\"t\""), "{debug}");
    }
}
