//! Headers with placeholders.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use serde_json::{Map, Value};

use super::{environment::Environment, error::TemplateError, text::Template};
use crate::request::InvalidArguments;

/// Maximum length of a header value, in bytes.
const MAX_VALUE_BYTES: usize = 8 * 1024;

/// Headers that the client sets: they frame the message or address the server.
const RESERVED: [HeaderName; 8] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Header names with the templates of their values.
#[derive(Debug, Clone, Default)]
pub(super) struct HeaderTemplates(Vec<(HeaderName, Template)>);

impl HeaderTemplates {
    /// Creates the templates from `headers` of an entry.
    ///
    /// # Errors
    /// When a header is reserved, its name or value is not valid, or a cookie or the content type has a
    /// placeholder.
    pub(super) fn new<'a>(
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
        environment: &mut Environment<'_>,
    ) -> Result<Self, TemplateError> {
        let mut templates = Vec::new();
        for (name, value) in headers {
            let name = header_name(name)?;
            let value = Template::parse(value, environment)?;
            if value.has_parameters() && (name == COOKIE || name == CONTENT_TYPE) {
                return Err(TemplateError(format!("headers: {name} must not have parameters")));
            }
            if let Some(text) = value.clone().into_text()
                && let Err(reason) = header_value(&text)
            {
                return Err(TemplateError(format!("headers: the value of {name} {reason}")));
            }
            templates.push((name, value));
        }
        Ok(Self(templates))
    }

    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.0.iter().map(|(_, template)| template)
    }

    /// Removes the configured content type and returns it.
    pub(super) fn take_content_type(&mut self) -> Option<HeaderValue> {
        let at = self.0.iter().position(|(name, _)| *name == CONTENT_TYPE)?;
        let (_, template) = self.0.remove(at);
        header_value(&template.into_text()?).ok()
    }

    /// Returns the headers for a call. One whose argument is absent or null is left out.
    ///
    /// # Errors
    /// When an argument cannot stand in a header.
    pub(super) fn fill(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<HeaderMap, InvalidArguments> {
        let mut headers = HeaderMap::with_capacity(self.0.len());
        for (name, template) in &self.0 {
            let Some(text) = template.text(arguments) else { continue };
            let value = header_value(&text).map_err(|reason| {
                InvalidArguments(format!("the value of the header {name} {reason}"))
            })?;
            headers.insert(name.clone(), value);
        }
        Ok(headers)
    }
}

/// Parses the name of a header that may be configured.
///
/// # Errors
/// When it is not valid or reserved.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, TemplateError> {
    let shown: String = name.chars().take(80).collect();
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| TemplateError(format!("headers: {shown:?} is not a valid header name")))?;
    let is_hop = parsed.as_str().starts_with("proxy-") || parsed == "keep-alive";
    if is_hop || RESERVED.contains(&parsed) {
        return Err(TemplateError(format!("headers: {parsed} is set by the client; remove it")));
    }
    Ok(parsed)
}

/// Returns a header value that is not shown in logs, or the reason why the text is not one.
fn header_value(text: &str) -> Result<HeaderValue, String> {
    if text.len() > MAX_VALUE_BYTES {
        return Err(format!("exceeds {MAX_VALUE_BYTES} bytes"));
    }
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return Err("must consist of visible ASCII characters and spaces".to_owned());
    }
    let mut value = HeaderValue::from_str(text.trim()).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn templates(name: &str, value: &str) -> Result<HeaderTemplates, TemplateError> {
        let lookup = |name: &str| (name == "TOKEN").then(|| "secret-token".to_owned());
        let headers = [(name.to_owned(), value.to_owned())];
        let headers = headers.iter().map(|(name, value)| (name, value));
        HeaderTemplates::new(headers, &mut Environment::new(&lookup))
    }

    #[test]
    fn reserved_and_invalid_headers_are_rejected() {
        let invalid = [
            ("Host", "a"),
            ("content-length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("Upgrade", "x"),
            ("TE", "x"),
            ("Proxy-Authorization", "x"),
            ("Keep-Alive", "x"),
            ("Cookie", "a=${parameters.x}"),
            ("Content-Type", "${parameters.x}"),
            ("bad name", "x"),
            ("x\r\ny", "x"),
            ("${parameters.x}", "x"),
            ("X-A", "a\r\nb"),
            ("X-A", "é"),
        ];
        for (name, value) in invalid {
            assert!(templates(name, value).is_err(), "{name}: {value}");
        }
        assert!(templates("Cookie", "a=${TOKEN}").is_ok());
    }

    #[test]
    fn arguments_cannot_end_a_header() {
        let headers = templates("X-Name", "n ${parameters.x}").unwrap();
        let fill = |value: Value| {
            let Value::Object(arguments) = json!({"x": value}) else { unreachable!() };
            headers.fill(&arguments)
        };
        assert_eq!(fill(json!("b")).unwrap()["x-name"], "n b");
        assert_eq!(fill(json!([1])).unwrap()["x-name"], "n [1]");
        assert!(fill(Value::Null).unwrap().is_empty());
        for value in ["a\r\nX-Evil: 1", "a\nb", "\0", "é", "\u{7f}", &"x".repeat(9000)] {
            assert!(fill(json!(value)).is_err(), "{value:?}");
        }
    }

    #[test]
    fn values_are_sensitive() {
        let headers = templates("Authorization", "Bearer ${TOKEN}").unwrap();
        let filled = headers.fill(&Map::new()).unwrap();
        assert!(filled["authorization"].is_sensitive());
        assert!(!format!("{headers:?} {filled:?}").contains("secret-token"));
    }
}
