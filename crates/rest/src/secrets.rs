//! Redaction of a tool's secrets in its results.

use std::{borrow::Cow, fmt, fmt::Write as _};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rockbot_tools::{ContentBlock, ToolFailure, ToolResult};
use serde_json::Value;
use url::form_urlencoded;

/// Replacement of a secret.
const REDACTED: &str = "[secret]";
/// Minimum length of a secret that is redacted, in bytes. A shorter one could be an ordinary word.
const MIN_BYTES: usize = 8;
/// Maximum length of a secret that is redacted, in bytes.
const MAX_BYTES: usize = 16 * 1024;
/// Maximum number of secrets of one tool.
const MAX_SECRETS: usize = 256;

/// The secrets of a tool. A model must not read them when an API echoes its request.
///
/// A secret is found as it is, and as it is written in JSON, URLs, forms, HTML and base64.
pub(crate) struct Secrets {
    matcher: Option<AhoCorasick>,
    forms: Vec<String>,
}

impl Secrets {
    /// Creates the redaction of these values. Those shorter than 8 bytes are ignored.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let usable = |value: &String| (MIN_BYTES..=MAX_BYTES).contains(&value.len());
        let values = values.into_iter().filter(usable).take(MAX_SECRETS);
        let mut forms: Vec<_> = values.flat_map(|value| forms_of(&value)).collect();
        forms.sort();
        forms.dedup();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(&forms);
        // Building fails only when the patterns do not fit into memory, which the limits prevent.
        let matcher = matcher.ok().filter(|_| !forms.is_empty());
        Self { matcher, forms }
    }

    /// Returns the text without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher.as_ref().filter(|matcher| matcher.is_match(text)) else {
            return Cow::Borrowed(text);
        };
        let mut clean = String::with_capacity(text.len());
        matcher.replace_all_with(text, &mut clean, |_, _, clean| {
            clean.push_str(REDACTED);
            true
        });
        Cow::Owned(clean)
    }

    /// Returns the text up to a suffix that may be the beginning of a secret. For text that is still
    /// growing.
    pub(crate) fn without_beginning<'a>(&self, text: &'a str) -> &'a str {
        let begins = |form: &String| {
            let longest = form.len().saturating_sub(1).min(text.len());
            (1..=longest).rev().find(|length| {
                let suffix = &text.as_bytes()[text.len() - length..];
                suffix.eq_ignore_ascii_case(&form.as_bytes()[..*length])
            })
        };
        let held_back = self.forms.iter().filter_map(begins).max().unwrap_or(0);
        &text[..text.floor_char_boundary(text.len() - held_back)]
    }

    /// Redacts the content and the details of a result.
    pub(crate) fn redact_result(&self, mut result: ToolResult) -> ToolResult {
        if self.matcher.is_none() {
            return result;
        }
        for block in &mut result.content {
            match block {
                ContentBlock::Text { text } => self.replace(text),
                ContentBlock::Resource { uri, text, .. } => {
                    self.replace(uri);
                    text.iter_mut().for_each(|text| self.replace(text));
                }
                ContentBlock::Image { mime_type, .. } | ContentBlock::Audio { mime_type, .. } => {
                    self.replace(mime_type);
                }
            }
        }
        if let Some(details) = &mut result.details {
            self.redact_value(details);
        }
        result
    }

    /// Redacts the message of a failure.
    pub(crate) fn redact_failure(&self, mut failure: ToolFailure) -> ToolFailure {
        match &mut failure {
            ToolFailure::InvalidArguments { message }
            | ToolFailure::Failed { message, .. }
            | ToolFailure::Overloaded { message }
            | ToolFailure::Unavailable { message, .. }
            | ToolFailure::OutcomeUnknown { message }
            | ToolFailure::NotPermitted { reason: message } => self.replace(message),
            _ => {}
        }
        failure
    }

    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.replace(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.redact_value(value));
            }
            _ => {}
        }
    }

    fn replace(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redact(text) {
            *text = clean;
        }
    }
}

/// Returns the secret as it may be written in a response.
fn forms_of(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let json = json.trim_matches('"').to_owned();
    let percent = secret.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    });
    let escaped_html = |and: &str, less: &str, greater: &str| {
        json.replace('&', and).replace('<', less).replace('>', greater)
    };
    vec![
        form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        percent,
        json.replace('/', "\\/"),
        escaped_html("\\u0026", "\\u003c", "\\u003e"),
        escaped_html("&amp;", "&lt;", "&gt;"),
        BASE64_STANDARD.encode(secret).trim_end_matches('=').to_owned(),
        secret.to_owned(),
        json,
    ]
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("forms", &self.forms.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "p@ss/w&rd \"x\"";

    fn secrets() -> Secrets {
        Secrets::new([SECRET.to_owned(), "short".to_owned()])
    }

    #[test]
    fn every_form_of_a_secret_is_redacted() {
        for form in forms_of(SECRET) {
            let text = format!("before {form} after short");
            let redacted = secrets().redact(&text).into_owned();
            assert_eq!(redacted.replace('=', ""), "before [secret] after short", "{form}");
        }
        let lower = "p%40ss%2fw%26rd%20%22x%22";
        assert_eq!(secrets().redact(lower), REDACTED);
        assert!(!format!("{:?}", secrets()).contains("rd"));
    }

    #[test]
    fn result_and_failure_are_redacted() {
        let details = json!({"a": [SECRET, 7], "b": {"c": SECRET}});
        let result = secrets().redact_result(ToolResult::text(SECRET).with_details(details));
        assert_eq!(result.to_text(), REDACTED);
        assert_eq!(result.details, Some(json!({"a": [REDACTED, 7], "b": {"c": REDACTED}})));
        let failure = secrets().redact_failure(ToolFailure::failed(SECRET));
        assert_eq!(failure.to_string(), REDACTED);
    }

    #[test]
    fn beginning_of_a_secret_is_held_back() {
        let secrets = Secrets::new(["hunter2hunter2".to_owned()]);
        assert_eq!(secrets.without_beginning("a hunter2hun"), "a ");
        assert_eq!(secrets.without_beginning("a hunter2hunter3"), "a hunter2hunter3");
        assert_eq!(secrets.without_beginning("é h"), "é ");
        assert_eq!(secrets.without_beginning(""), "");
    }
}
