//! Input that an MCP server requests from the user of a call.
//!
//! An agent passes the request on with the reply [`ReplyBody::InputAsked`](crate::ReplyBody).

mod field;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ids::{InputId, SessionId},
    message::Message,
    outside_text::{is_escaped, is_name, plain},
    tool::null_is_default,
};

pub use self::field::{InputField, InputKind, InputOption};

/// A request for input. All text is from the server: untrusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequest {
    /// The MCP server that asks.
    pub server: String,
    /// Why it asks, at most [`MAX_MESSAGE_CHARS`](Self::MAX_MESSAGE_CHARS).
    #[serde(default, deserialize_with = "null_is_default")]
    pub message: String,
    /// The requested input.
    #[serde(flatten)]
    pub body: InputBody,
}

/// Requested input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum InputBody {
    /// Values for some fields. Never a secret: see [`InputField::is_secret`].
    Form {
        /// The fields, at most [`InputRequest::MAX_FIELDS`].
        #[serde(default, deserialize_with = "null_is_default")]
        fields: Vec<InputField>,
    },
    /// A visit to a page of a third party, which the server learns of by itself.
    Url {
        /// The address of the page; see [`link_host`].
        url: String,
    },
    /// A kind that this build does not know. It can only be declined.
    #[serde(other)]
    Other,
}

/// A user's response to a request for input. The content is private: it is neither logged nor recorded.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputResponse {
    /// Decision of the user.
    pub action: InputAction,
    /// The values of an accepted form, by the names of its fields.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub content: Map<String, Value>,
}

/// Decision of a user on a request for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputAction {
    /// The user gave the values, or opens the page.
    Accept,
    /// The user refuses.
    Decline,
    /// The user decided nothing, or not in time. Unknown actions parse as this one.
    #[serde(other)]
    Cancel,
}

/// Outcome of a request for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputOutcome {
    /// The user responded.
    Accept,
    /// The user refused.
    Decline,
    /// No response arrived in time.
    Expired,
    /// The user decided nothing, or the call ended. Unknown outcomes parse as this one.
    #[serde(other)]
    Cancel,
}

impl From<InputAction> for InputOutcome {
    fn from(action: InputAction) -> Self {
        match action {
            InputAction::Accept => Self::Accept,
            InputAction::Decline => Self::Decline,
            InputAction::Cancel => Self::Cancel,
        }
    }
}

/// A user's response to a request for input of an agent's call, delivered to every process of the agent. The process
/// that sent the request accepts one response, and only if it is valid for the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputAnswer {
    /// Conversation of the request.
    pub session_id: SessionId,
    /// The request.
    pub input_id: InputId,
    /// The response.
    #[serde(flatten)]
    pub response: InputResponse,
}

impl Message for InputAnswer {
    const TYPE: &'static str = "InputAnswer";
}

impl fmt::Debug for InputResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputResponse")
            .field("action", &self.action)
            .field("values", &self.content.len())
            .finish()
    }
}

impl From<InputAction> for InputResponse {
    fn from(action: InputAction) -> Self {
        Self { action, content: Map::new() }
    }
}

impl InputRequest {
    /// Maximum length of a message in characters.
    pub const MAX_MESSAGE_CHARS: usize = 2000;
    /// Maximum number of fields in a form.
    pub const MAX_FIELDS: usize = 20;
    /// Maximum number of options of a field.
    pub const MAX_OPTIONS: usize = 100;
    /// Maximum size of an address in bytes.
    pub const MAX_URL_BYTES: usize = 2048;
    /// Maximum [`size`](Self::size) of a request in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;
    const MAX_TITLE_CHARS: usize = 200;
    const MAX_DESCRIPTION_CHARS: usize = 500;

    /// Returns the request with bounded text without hidden characters.
    ///
    /// # Errors
    /// Why it cannot be shown to a user.
    pub fn checked(mut self) -> Result<Self, &'static str> {
        if !is_name(&self.server) {
            return Err("the name of the server is invalid");
        }
        self.message = plain(&self.message, Self::MAX_MESSAGE_CHARS);
        match &mut self.body {
            InputBody::Form { fields } => check_fields(fields)?,
            InputBody::Url { url } if link_host(url).is_none() => {
                return Err("the address is not a plain web address");
            }
            InputBody::Url { .. } => {}
            InputBody::Other => return Err("the kind of the request is unknown"),
        }
        if self.size() > Self::MAX_BYTES {
            return Err("the form is too large");
        }
        Ok(self)
    }

    /// Returns the size of all texts in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let body = match &self.body {
            InputBody::Form { fields } => fields.iter().map(InputField::size).sum(),
            InputBody::Url { url } => url.len(),
            InputBody::Other => 0,
        };
        self.server.len() + self.message.len() + body
    }

    /// Checks a response to this request. Values of unknown fields are refused.
    ///
    /// # Errors
    /// The mistake, for the user.
    pub fn check(&self, response: &InputResponse) -> Result<(), String> {
        let content = &response.content;
        match (&self.body, response.action) {
            (_, InputAction::Decline | InputAction::Cancel) if content.is_empty() => Ok(()),
            (InputBody::Url { .. }, InputAction::Accept) if content.is_empty() => Ok(()),
            (InputBody::Form { fields }, InputAction::Accept) => {
                let is_known = |name: &String| fields.iter().any(|field| field.name == *name);
                if !content.keys().all(is_known) {
                    return Err("the response has a value that was not asked for".to_owned());
                }
                fields.iter().try_for_each(|field| match content.get(&field.name) {
                    Some(value) => field.check(value),
                    None if field.required => Err(format!("{}: a value is required", field.name)),
                    None => Ok(()),
                })
            }
            (InputBody::Other, InputAction::Accept) => {
                Err("the kind of the request is unknown; it can only be declined".to_owned())
            }
            _ => Err("only an accepted form has content".to_owned()),
        }
    }
}

/// Bounds the fields of a form.
fn check_fields(fields: &mut [InputField]) -> Result<(), &'static str> {
    if fields.len() > InputRequest::MAX_FIELDS {
        return Err("the form has too many fields");
    }
    for at in 0..fields.len() {
        if fields[..at].iter().any(|other| other.name == fields[at].name) {
            return Err("the form has two fields of one name");
        }
    }
    for field in fields {
        if !is_name(&field.name) {
            return Err("the name of a field is invalid");
        }
        field.title = line(&field.title, InputRequest::MAX_TITLE_CHARS);
        field.description = line(&field.description, InputRequest::MAX_DESCRIPTION_CHARS);
        if field.is_secret() {
            return Err("it asks for a secret, which must not pass through agents");
        }
        match &mut field.kind {
            InputKind::Choice { options } | InputKind::Choices { options, .. } => {
                if options.is_empty() || options.len() > InputRequest::MAX_OPTIONS {
                    return Err("a field has no options, or too many");
                }
                for option in options {
                    if !is_option(&option.value) {
                        return Err("an option is invalid");
                    }
                    option.title = line(&option.title, InputRequest::MAX_TITLE_CHARS);
                }
            }
            InputKind::Text { format, .. } => {
                *format = format.take().map(|format| line(&format, 32));
            }
            InputKind::Number { .. } | InputKind::Boolean => {}
            InputKind::Other => return Err("the kind of a field is unknown"),
        }
        field.default = field.default.take().filter(|value| field.check(value).is_ok());
    }
    Ok(())
}

fn line(text: &str, max_chars: usize) -> String {
    plain(text, max_chars).replace(['\n', '\t'], " ")
}

/// Returns whether a text can be the value of an option: short, and without hidden characters.
fn is_option(value: &str) -> bool {
    (1..=256).contains(&value.len()) && !value.chars().any(is_escaped)
}

/// Returns the host of a web address with its port; `None` for anything but a plain `https` or `http`
/// address of printable ASCII without a user name, so that everything reads it alike.
#[must_use]
pub fn link_host(url: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if url.len() > InputRequest::MAX_URL_BYTES || !url.bytes().all(is_plain) {
        return None;
    }
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let has_name = host.bytes().next().is_some_and(|first| first != b':');
    (has_name && host.bytes().all(is_host)).then_some(host)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(fields: &Value) -> Result<InputRequest, &'static str> {
        let request =
            json!({"server": "github", "message": "Which?", "mode": "form", "fields": fields});
        serde_json::from_value::<InputRequest>(request).unwrap().checked()
    }

    fn accept(content: &Value) -> InputResponse {
        serde_json::from_value(json!({"action": "accept", "content": content})).unwrap()
    }

    #[test]
    fn values_are_checked_and_parsed() {
        let request = form(&json!([
            {"name": "mail", "required": true, "type": "text", "format": "email", "maxLength": 30},
            {"name": "count", "type": "number", "integer": true, "minimum": 1.0, "maximum": 9.0},
            {"name": "sure", "type": "boolean", "default": true},
            {"name": "color", "type": "choice", "default": "pink",
             "options": [{"value": "r", "title": "Red"}, {"value": "g"}]},
            {"name": "days", "type": "choices", "maxItems": 1,
             "options": [{"value": "mon"}, {"value": "tue"}]},
        ]))
        .unwrap();
        let InputBody::Form { fields } = &request.body else { panic!("a form") };
        assert_eq!(fields[2].default, Some(json!(true)));
        assert_eq!(fields[3].default, None, "the default is no option");
        let valid = json!({"mail": "a@b.example", "count": 2, "color": "g", "days": ["tue"]});
        assert_eq!(request.check(&accept(&valid)), Ok(()));
        for invalid in [
            json!({}),
            json!({"mail": "a"}),
            json!({"mail": "a@b", "count": 2.5}),
            json!({"mail": "a@b", "count": 10}),
            json!({"mail": "a@b", "color": "Red"}),
            json!({"mail": "a@b", "days": ["mon", "tue"]}),
            json!({"mail": "a@b", "days": ["mon", "mon"]}),
            json!({"mail": "a@b", "other": 1}),
            json!({"mail": 1}),
        ] {
            assert!(request.check(&accept(&invalid)).is_err(), "{invalid}");
        }
        for (field, typed, value) in [
            (1, " 3 ", json!(3)),
            (2, "No", json!(false)),
            (3, "red", json!("r")),
            (3, "2", json!("g")),
            (4, "Tue", json!(["tue"])),
        ] {
            assert_eq!(fields[field].parse(typed), Ok(value), "{typed}");
        }
        assert!(fields[1].parse("3.5").is_err() && fields[3].parse("3").is_err());
    }

    #[test]
    fn forms_that_ask_for_secrets_are_refused() {
        for name in
            ["password", "apiKey", "API_KEY", "github-token", "Card number", "PIN", "db_pwd"]
        {
            let text = json!([{"name": name, "type": "text"}]);
            assert!(form(&text).unwrap_err().contains("secret"), "{name}");
        }
        let titled = json!([{"name": "x", "title": "Your Password", "type": "text"}]);
        assert!(form(&titled).is_err());
        for name in ["key", "businessName", "pinned"] {
            assert!(form(&json!([{"name": name, "type": "text"}])).is_ok(), "{name}");
        }
    }

    #[test]
    fn requests_are_bounded_and_stripped() {
        let many: Vec<_> =
            (0..21).map(|at| json!({"name": at.to_string(), "type": "boolean"})).collect();
        assert!(form(&json!(many)).is_err());
        assert!(
            form(&json!([{"name": "a", "type": "boolean"}, {"name": "a", "type": "boolean"}]))
                .is_err()
        );
        assert!(form(&json!([{"name": "a\u{202e}", "type": "boolean"}])).is_err());
        assert!(form(&json!([{"name": "a", "type": "hologram"}])).is_err());
        assert!(form(&json!([{"name": "a", "type": "choice", "options": []}])).is_err());
        let option = |at: usize| json!({"value": format!("{at:0256}"), "title": "x".repeat(200)});
        let options: Vec<_> = (0..100).map(option).collect();
        let large =
            |at: usize| json!({"name": at.to_string(), "type": "choice", "options": options});
        assert!(form(&json!([large(0)])).is_ok());
        assert!(form(&json!([large(0), large(1)])).unwrap_err().contains("too large"));
        let shown =
            form(&json!([{"name": "a", "title": "b\u{1b}[31m\nc", "type": "boolean"}])).unwrap();
        let InputBody::Form { fields } = shown.body else { panic!("a form") };
        assert_eq!(fields[0].title, "b c");
    }

    #[test]
    fn host_of_a_link_is_unambiguous() {
        for (url, host) in [
            ("https://auth.example.com/login?x=@evil", Some("auth.example.com")),
            ("http://127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("https://[::1]/a", Some("[::1]")),
            ("https://good.example@evil.example/", None),
            ("https://good.example\\@evil.example/", None),
            ("https://good.examp\u{142}e/", None),
            ("https:///x", None),
            ("javascript:alert(1)", None),
            ("https://a b/", None),
        ] {
            assert_eq!(link_host(url), host, "{url}");
        }
    }

    #[test]
    fn values_of_a_response_are_not_shown() {
        let shown = format!("{:?}", accept(&json!({"name": "Alice"})));
        assert!(!shown.contains("Alice"), "{shown}");
    }
}
