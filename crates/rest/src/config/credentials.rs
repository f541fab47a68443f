//! Values of an entry that must not appear in results.

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Ends of names that hold credentials, without separators.
const CREDENTIALS: [&str; 18] = [
    "accesskey",
    "apikey",
    "auth",
    "authkey",
    "authorization",
    "credential",
    "credentials",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "sessionid",
    "sig",
    "signature",
    "subscriptionkey",
    "token",
];
/// Names of headers and of members of a query that hold credentials only as a whole, because other names
/// end in them. In a body they mostly name something else, such as a field to sort by.
const WHOLE_NAMES: [&str; 3] = ["key", "sid", "xkey"];
/// Minimum length of a segment of a path that is a credential, in bytes.
const MIN_SEGMENT_BYTES: usize = 16;

/// Returns the values of variables that are secrets: not those that only name the API. Of addresses, the
/// credentials that they hold are secrets.
pub(super) fn secrets_in(values: Vec<String>, origin: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    for value in values {
        if value.starts_with("https://") || value.starts_with("http://") {
            secrets.extend(credentials_in_url(&value));
        } else if !origin.contains(&value) {
            secrets.push(value);
        }
    }
    secrets
}

/// Returns the credentials of a header that is written into the file.
pub(super) fn credentials_in_header((name, value): (&String, &String)) -> Vec<String> {
    let is = |header: http::HeaderName| name.eq_ignore_ascii_case(header.as_str());
    let credentials: Vec<&str> = if is(AUTHORIZATION) || is(PROXY_AUTHORIZATION) {
        value.split_whitespace().last().into_iter().collect()
    } else if is(COOKIE) {
        let pairs = value.split(';').map(|pair| pair.split_once('=').map_or(pair, |pair| pair.1));
        pairs.map(str::trim).collect()
    } else if names_credential(name) || is_whole_name(name) {
        // A scheme may stand before the credential.
        [Some(value.trim()), value.split_whitespace().last()].into_iter().flatten().collect()
    } else {
        Vec::new()
    };
    credentials.into_iter().filter(|text| is_literal(text)).map(str::to_owned).collect()
}

/// Returns the credentials in the path and the query of a URL, or of a text that will be one.
pub(super) fn credentials_in_url(url: &str) -> Vec<String> {
    let url = url.split('#').next().unwrap_or_default();
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let path = address.split_once("://").map_or(address, |(_, rest)| rest);
    let segments = path.split('/').skip(1).filter(|segment| is_random(segment));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let is_credential = |name: &str| names_credential(name) || is_whole_name(name);
    let values = pairs.filter(|(name, _)| is_credential(name)).map(|(_, value)| value);
    let written = segments.chain(values).filter(|text| is_literal(text));
    let both = written.flat_map(|text| {
        [text.to_owned(), percent_decode_str(text).decode_utf8_lossy().into_owned()]
    });
    both.collect()
}

/// Returns the credentials in a query that are written into the file.
pub(super) fn credentials_in_query(query: &Value) -> Vec<String> {
    let members = query.as_object().into_iter().flatten();
    let whole = members.filter(|(name, _)| is_whole_name(name));
    let whole = whole.filter_map(|(_, value)| value.as_str()).filter(|text| is_literal(text));
    whole.map(str::to_owned).chain(credentials_in_body(query)).collect()
}

/// Returns the credentials among the members of a body that are written into the file.
pub(super) fn credentials_in_body(value: &Value) -> Vec<String> {
    let (mut credentials, mut pending) = (Vec::new(), vec![value]);
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match value {
                        Value::String(text) if names_credential(name) && is_literal(text) => {
                            credentials.push(text.clone());
                        }
                        _ => pending.push(value),
                    }
                }
            }
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    credentials
}

/// Returns `true` if values of this name are credentials, wherever it stands.
fn names_credential(name: &str) -> bool {
    let plain = plain_name(name);
    CREDENTIALS.iter().any(|end| plain.ends_with(end))
}

/// Returns `true` if values of this name are credentials in a header and in a query.
fn is_whole_name(name: &str) -> bool {
    WHOLE_NAMES.contains(&plain_name(name).as_str())
}

/// Returns a name without separators, in lower case.
fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Returns `true` if a text has no placeholder. Values of variables are known without it.
fn is_literal(text: &str) -> bool {
    !text.is_empty() && !text.contains("${")
}

/// Returns `true` if a segment of a path looks like a random word and not like a name.
fn is_random(segment: &str) -> bool {
    let has = |matches: fn(u8) -> bool| segment.bytes().any(matches);
    segment.len() >= MIN_SEGMENT_BYTES
        && !segment.contains('.')
        && has(|byte| byte.is_ascii_digit())
        && has(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn header(name: &str, value: &str) -> Vec<String> {
        credentials_in_header((&name.to_owned(), &value.to_owned()))
    }

    #[test]
    fn headers_that_hold_credentials_are_known_by_name() {
        assert_eq!(header("authorization", "Bearer literal"), ["literal"]);
        assert_eq!(header("X-Api-Key", "literal-key"), ["literal-key", "literal-key"]);
        assert_eq!(header("PRIVATE-TOKEN", "literal"), ["literal", "literal"]);
        assert_eq!(header("Cookie", "a=one; session=two"), ["one", "two"]);
        for (name, value) in [("Accept", "text/html"), ("X-Api-Version", "2022-11-28")] {
            assert!(header(name, value).is_empty(), "{name}");
        }
        assert!(header("X-Api-Key", "${KEY}").is_empty());
    }

    #[test]
    fn urls_hold_credentials_in_path_and_query() {
        let hook = "https://hooks.example.com/services/T0/B0/a1b2c3d4e5f6g7h8i9?api_key=k%2F1&q=x";
        assert_eq!(
            credentials_in_url(hook),
            ["a1b2c3d4e5f6g7h8i9", "a1b2c3d4e5f6g7h8i9", "k%2F1", "k/1"]
        );
        let plain = "https://api.example.com/v1/weather/openapi-3.1.0-bundle.json?units=metric";
        assert!(credentials_in_url(plain).is_empty());
        assert!(credentials_in_url("https://a/${HOOK}/x?token=${TOKEN}").is_empty());
        let values = vec![hook.to_owned(), "token-value".to_owned(), "api.example".to_owned()];
        let secrets = secrets_in(values, "https://api.example.com/");
        assert!(secrets.contains(&"token-value".to_owned()) && secrets.len() == 5, "{secrets:?}");
    }

    #[test]
    fn members_hold_credentials_at_any_depth() {
        let body = json!({"auth": {"apiKey": "one", "user": "me"}, "list": [{"password": "two"}],
            "sort_key": "created_at", "token": "${TOKEN}"});
        let mut found = credentials_in_body(&body);
        found.sort();
        assert_eq!(found, ["one", "two"]);
    }

    #[test]
    fn key_is_a_credential_in_headers_and_queries_only() {
        let members = json!({"key": "priority", "filter": {"key": "status"}});
        assert!(credentials_in_body(&members).is_empty());
        assert_eq!(credentials_in_query(&members), ["priority"]);
        assert_eq!(credentials_in_url("https://a.example/x?key=literal"), ["literal", "literal"]);
        assert_eq!(header("X-Key", "literal"), ["literal", "literal"]);
    }
}
