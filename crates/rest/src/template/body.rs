//! Bodies with placeholders.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::{
    environment::Environment,
    error::TemplateError,
    text::{Template, text_of},
};
use crate::request::{InvalidArguments, Part, RequestBody};

/// Encodings of a configured body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BodyKind {
    /// `application/json`.
    #[default]
    Json,
    /// `application/x-www-form-urlencoded`. Objects become keys such as `filter[state]`.
    Form,
    /// `multipart/form-data`. A value `{"base64": …, "filename": …, "contentType": …}` is a file.
    Multipart,
    /// `text/plain`.
    Text,
}

/// A body whose texts may have placeholders.
#[derive(Debug, Clone)]
pub(super) struct BodyTemplate {
    kind: BodyKind,
    content_type: Option<HeaderValue>,
    value: ValueTemplate,
}

#[derive(Debug, Clone)]
enum ValueTemplate {
    /// A number, a truth value or null.
    Literal(Value),
    Text(Template),
    Array(Vec<ValueTemplate>),
    Object(Vec<(String, ValueTemplate)>),
}

impl BodyTemplate {
    /// Creates the template of a body.
    ///
    /// # Errors
    /// When the body does not fit its kind, or the name of a member has a placeholder.
    pub(super) fn new(
        kind: BodyKind,
        content_type: Option<HeaderValue>,
        body: &Value,
        environment: &mut Environment<'_>,
    ) -> Result<Self, TemplateError> {
        let value = ValueTemplate::new(body, environment)?;
        match (kind, &value) {
            (
                BodyKind::Form | BodyKind::Multipart,
                ValueTemplate::Array(_) | ValueTemplate::Literal(_),
            ) => {
                return Err(TemplateError::new(
                    "body: with bodyType form or multipart it must be an object",
                ));
            }
            (BodyKind::Text, ValueTemplate::Array(_) | ValueTemplate::Object(_)) => {
                return Err(TemplateError::new("body: with bodyType text it must be a text"));
            }
            (BodyKind::Form | BodyKind::Multipart, _) if content_type.is_some() => {
                return Err(TemplateError::new(
                    "headers: content-type is set by bodyType form and multipart; remove it",
                ));
            }
            _ => {}
        }
        Ok(Self { kind, content_type, value })
    }

    pub(super) fn templates(&self) -> Vec<&Template> {
        let mut templates = Vec::new();
        self.value.collect(&mut templates);
        templates
    }

    /// Returns the body for a call. Members and items whose argument is absent are left out.
    ///
    /// # Errors
    /// When an argument cannot be encoded.
    pub(super) fn fill(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<RequestBody, InvalidArguments> {
        let Some(value) = self.value.fill(arguments) else { return Ok(RequestBody::Empty) };
        let (default_type, bytes) = match self.kind {
            BodyKind::Json => ("application/json", value.to_string().into_bytes()),
            BodyKind::Form => {
                ("application/x-www-form-urlencoded", form(object(&value)?).into_bytes())
            }
            BodyKind::Multipart => {
                let parts = object(&value)?.iter().map(|(name, value)| parts(name, value));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                return Ok(RequestBody::Multipart(parts.into_iter().flatten().collect()));
            }
            BodyKind::Text => {
                let text = text_of(&value).unwrap_or_default();
                ("text/plain; charset=utf-8", text.into_owned().into_bytes())
            }
        };
        let content_type = self.content_type.clone();
        let content_type = content_type.unwrap_or(HeaderValue::from_static(default_type));
        Ok(RequestBody::Bytes { content_type, bytes })
    }
}

impl ValueTemplate {
    fn new(value: &Value, environment: &mut Environment<'_>) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text, environment)?),
            Value::Array(items) => {
                let items = items.iter().map(|item| Self::new(item, environment));
                Self::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| {
                    if name.contains("${parameters.") {
                        let problem = "body: the name of a member must not have a parameter";
                        return Err(TemplateError::new(problem));
                    }
                    Ok((name.clone(), Self::new(value, environment)?))
                });
                Self::Object(members.collect::<Result<_, _>>()?)
            }
            literal => Self::Literal(literal.clone()),
        })
    }

    fn collect<'a>(&'a self, templates: &mut Vec<&'a Template>) {
        match self {
            Self::Literal(_) => {}
            Self::Text(template) => templates.push(template),
            Self::Array(items) => items.iter().for_each(|item| item.collect(templates)),
            Self::Object(members) => {
                members.iter().for_each(|(_, value)| value.collect(templates));
            }
        }
    }

    fn fill(&self, arguments: &Map<String, Value>) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Text(template) => Some(template.value(arguments)?.into_owned()),
            Self::Array(items) => {
                let items = items.iter().filter_map(|item| item.fill(arguments));
                Some(Value::Array(items.collect()))
            }
            Self::Object(members) => {
                let members = members
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), value.fill(arguments)?)));
                Some(Value::Object(members.collect()))
            }
        }
    }
}

fn object(value: &Value) -> Result<&Map<String, Value>, InvalidArguments> {
    value
        .as_object()
        .ok_or_else(|| InvalidArguments("the body must be an object; send one".to_owned()))
}

fn form(members: &Map<String, Value>) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    for (name, value) in members {
        append(&mut form, name, value);
    }
    form.finish()
}

/// Appends a value; its depth is limited by that of arguments and configuration.
fn append(form: &mut form_urlencoded::Serializer<'_, String>, name: &str, value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| append(form, name, item)),
        Value::Object(members) => {
            for (member, value) in members {
                append(form, &format!("{name}[{member}]"), value);
            }
        }
        scalar => {
            if let Some(text) = text_of(scalar) {
                form.append_pair(name, &text);
            }
        }
    }
}

/// Returns the parts of one member of a multipart body: several for an array.
fn parts(name: &str, value: &Value) -> Result<Vec<Part>, InvalidArguments> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => {
            let items = items.iter().map(|item| part(name, item));
            items.collect()
        }
        value => Ok(vec![part(name, value)?]),
    }
}

fn part(name: &str, value: &Value) -> Result<Part, InvalidArguments> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some(encoded) = text("base64") else {
        let bytes = text_of(value).unwrap_or_default().into_owned().into_bytes();
        let content_type = value.is_object().then(|| "application/json".to_owned());
        return Ok(Part { name: name.to_owned(), file_name: None, content_type, bytes });
    };
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| {
        InvalidArguments(format!("{name}.base64 is not valid base64; encode the file's content"))
    })?;
    let content_type = text("contentType");
    let is_type = |text: &String| {
        text.is_ascii() && text.contains('/') && !text.contains(|c: char| c.is_ascii_control())
    };
    if content_type.as_ref().is_some_and(|text| !is_type(text)) {
        return Err(InvalidArguments(format!(
            "{name}.contentType must be a media type such as image/png"
        )));
    }
    let file_name = text("filename").unwrap_or_else(|| "file".to_owned());
    if file_name.chars().any(char::is_control) || file_name.len() > 255 {
        return Err(InvalidArguments(format!(
            "{name}.filename must have at most 255 bytes and no control characters"
        )));
    }
    let content_type = content_type.or_else(|| Some("application/octet-stream".to_owned()));
    Ok(Part { name: name.to_owned(), file_name: Some(file_name), content_type, bytes })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "short at the call")]
    fn fill(kind: BodyKind, body: Value, arguments: Value) -> Result<RequestBody, String> {
        let Value::Object(arguments) = arguments else { unreachable!() };
        let lookup = |name: &str| (name == "KEY").then(|| "secret".to_owned());
        let template = BodyTemplate::new(kind, None, &body, &mut Environment::new(&lookup));
        let template = template.map_err(|error| error.to_string())?;
        template.fill(&arguments).map_err(|error| error.to_string())
    }

    fn text(kind: BodyKind, body: Value, arguments: Value) -> String {
        match fill(kind, body, arguments).unwrap() {
            RequestBody::Bytes { bytes, .. } => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn json_keeps_types_and_leaves_out_absent_members() {
        let body = json!({
            "key": "${KEY}", "n": "${parameters.n}", "none": "${parameters.none}", "fixed": [1, null],
            "list": ["${parameters.n}", "${parameters.none}", "x${parameters.n}"],
        });
        let filled = text(BodyKind::Json, body, json!({"n": 7}));
        let filled: Value = serde_json::from_str(&filled).unwrap();
        let expected = json!({"key": "secret", "n": 7, "fixed": [1, null], "list": [7, "x7"]});
        assert_eq!(filled, expected);
        let absent = fill(BodyKind::Json, json!("${parameters.none}"), json!({}));
        assert_eq!(absent.unwrap(), RequestBody::Empty);
    }

    #[test]
    fn form_and_text_are_encoded() {
        let body = json!({"a": "x ${parameters.q}", "f": {"s": "${parameters.l}"}, "z": null});
        let arguments = json!({"q": "&", "l": [1, 2]});
        assert_eq!(text(BodyKind::Form, body, arguments), "a=x+%26&f%5Bs%5D=1&f%5Bs%5D=2");
        assert_eq!(text(BodyKind::Text, json!("a ${parameters.q}"), json!({"q": 1})), "a 1");
        assert!(fill(BodyKind::Form, json!("${parameters.q}"), json!({"q": 1})).is_err());
    }

    #[test]
    fn multipart_holds_fields_and_files() {
        let body = json!({"title": "t", "file": "${parameters.file}", "none": null});
        let file = json!({"base64": "aGk=", "filename": "a.txt", "contentType": "text/plain"});
        let filled = fill(BodyKind::Multipart, body.clone(), json!({"file": file})).unwrap();
        let RequestBody::Multipart(parts) = filled else { panic!("{filled:?}") };
        let file = parts.iter().find(|part| part.name == "file").unwrap();
        assert_eq!((parts.len(), file.bytes.as_slice()), (2, b"hi".as_slice()));
        assert_eq!(file.file_name.as_deref(), Some("a.txt"));
        for file in [
            json!({"base64": "?"}),
            json!({"base64": "aGk=", "contentType": "a/b\r\nX: 1"}),
            json!({"base64": "aGk=", "filename": "a\nb"}),
        ] {
            assert!(fill(BodyKind::Multipart, body.clone(), json!({"file": file})).is_err());
        }
    }

    #[test]
    fn body_must_fit_its_kind() {
        for (kind, body) in [
            (BodyKind::Form, json!([1])),
            (BodyKind::Multipart, json!(1)),
            (BodyKind::Text, json!({})),
            (BodyKind::Json, json!({"${parameters.x}": 1})),
        ] {
            assert!(fill(kind, body, json!({})).is_err());
        }
    }
}
