//! The cookie of a session.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};

/// The cookie of a session: not readable by scripts, not sent by other sites, and over https bound to the host.
#[derive(Debug)]
pub(super) struct SessionCookie {
    name: &'static str,
    attributes: &'static str,
}

impl SessionCookie {
    pub(super) fn new(is_secure: bool) -> Self {
        if is_secure {
            let attributes = "; Path=/; HttpOnly; SameSite=Strict; Secure";
            return Self { name: "__Host-rockbot_session", attributes };
        }
        Self { name: "rockbot_session", attributes: "; Path=/; HttpOnly; SameSite=Strict" }
    }

    /// Returns the values of the cookie in a request.
    pub(super) fn values<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = self.name;
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the header that sets the cookie.
    pub(super) fn set(&self, value: &str, age: Duration) -> HeaderValue {
        self.header(value, age.as_secs())
    }

    /// Returns the header that removes the cookie.
    pub(super) fn removal(&self) -> HeaderValue {
        self.header("", 0)
    }

    fn header(&self, value: &str, seconds: u64) -> HeaderValue {
        let text = format!("{}={value}; Max-Age={seconds}{}", self.name, self.attributes);
        // Values are base64url.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_found_among_others() {
        let cookie = SessionCookie::new(false);
        let mut headers = HeaderMap::new();
        let text = "a=1; rockbot_session=x; xrockbot_session=y; rockbot_sessionx=z";
        headers.append("cookie", text.parse().unwrap());
        headers.append("cookie", "rockbot_session=w".parse().unwrap());
        assert_eq!(cookie.values(&headers).collect::<Vec<_>>(), ["x", "w"]);
        let secure = SessionCookie::new(true);
        assert_eq!(secure.values(&headers).count(), 0);
        let set = secure.set("v", Duration::from_secs(60));
        assert_eq!(
            set,
            "__Host-rockbot_session=v; Max-Age=60; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
    }
}
