//! Encoding of bodies.

use std::collections::BTreeMap;

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderValue;
use serde_json::{Map, Value};

use super::style::{Serialization, pairs, text};
use crate::request::{InvalidArguments, Part, RequestBody};

/// Maximum length of a media type, in bytes.
pub(super) const MAX_MEDIA_TYPE_BYTES: usize = 255;
/// Maximum number of parts of a multipart body.
const MAX_PARTS: usize = 1_000;
/// Maximum length of a file name or a content type that a caller states, in bytes.
const MAX_LABEL_BYTES: usize = 255;

/// Accepts base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Kind of a media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaKind {
    Json,
    Form,
    Multipart,
    Text,
    Xml,
    Bytes,
    /// `multipart` without form fields.
    Unsupported,
}

impl MediaKind {
    /// Returns the kind of a media type or range.
    pub(super) fn new(media_type: &str) -> Self {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (group, subtype) = essence.split_once('/').unwrap_or((essence.as_str(), ""));
        match (group, subtype) {
            ("application" | "text", "json") | ("*", _) | ("application", "*") => Self::Json,
            ("application", "x-www-form-urlencoded") => Self::Form,
            ("multipart", "form-data") => Self::Multipart,
            ("multipart", _) => Self::Unsupported,
            (_, "xml") => Self::Xml,
            (_, subtype) if subtype.ends_with("+json") => Self::Json,
            (_, subtype) if subtype.ends_with("+xml") && group == "application" => Self::Xml,
            ("text", _) => Self::Text,
            ("application", subtype) if TEXT_SUBTYPES.contains(&subtype) => Self::Text,
            _ => Self::Bytes,
        }
    }
}

/// Subtypes of `application` that are text.
const TEXT_SUBTYPES: [&str; 10] = [
    "graphql",
    "javascript",
    "jwt",
    "sparql-query",
    "sql",
    "toml",
    "x-ndjson",
    "x-yaml",
    "yaml",
    "jsonl",
];

/// Encoding of a field of a form or a multipart body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Field {
    /// Style, if the document states one.
    pub(super) style: Option<Serialization>,
    /// Content type, if the document states one.
    pub(super) content_type: Option<String>,
    /// The field is a file, or a list of files.
    pub(super) is_file: bool,
}

/// Encoding of the body of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyForm {
    Json { content_type: HeaderValue },
    Form { fields: BTreeMap<String, Field> },
    Multipart { fields: BTreeMap<String, Field> },
    Text { content_type: HeaderValue },
    Bytes { content_type: HeaderValue },
}

impl BodyForm {
    /// Returns the approximate size of the parts of the document that are kept, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Form { fields } | Self::Multipart { fields } => {
                fields.keys().map(|name| name.len() + 128).sum()
            }
            Self::Json { .. } | Self::Text { .. } | Self::Bytes { .. } => MAX_MEDIA_TYPE_BYTES,
        }
    }
}

/// Encodes the argument `body`.
///
/// # Errors
/// When the value does not have the form that the schema requires.
pub(super) fn encode(form: &BodyForm, body: &Value) -> Result<RequestBody, InvalidArguments> {
    Ok(match form {
        BodyForm::Json { content_type } => {
            let bytes = body.to_string().into_bytes();
            RequestBody::Bytes { content_type: content_type.clone(), bytes }
        }
        BodyForm::Text { content_type } => {
            let bytes = text(body).unwrap_or_default().into_bytes();
            RequestBody::Bytes { content_type: content_type.clone(), bytes }
        }
        BodyForm::Bytes { content_type } => {
            let bytes = decoded("body", body)?;
            RequestBody::Bytes { content_type: content_type.clone(), bytes }
        }
        BodyForm::Form { fields } => {
            let bytes = form_text(fields, object("body", body)?).into_bytes();
            let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            RequestBody::Bytes { content_type, bytes }
        }
        BodyForm::Multipart { fields } => multipart(fields, object("body", body)?)?,
    })
}

fn object<'v>(name: &str, value: &'v Value) -> Result<&'v Map<String, Value>, InvalidArguments> {
    value.as_object().ok_or_else(|| InvalidArguments(format!("{name} must be an object")))
}

fn decoded(name: &str, value: &Value) -> Result<Vec<u8>, InvalidArguments> {
    let decoded = value.as_str().and_then(|text| BASE64.decode(text.trim_end()).ok());
    decoded.ok_or_else(|| InvalidArguments(format!("{name} must be base64")))
}

/// Returns the text of a form.
pub(super) fn form_text(fields: &BTreeMap<String, Field>, body: &Map<String, Value>) -> String {
    let mut encoded: Vec<String> = Vec::new();
    for (name, value) in body {
        let style = fields.get(name).and_then(|field| field.style);
        let found = match (style, value) {
            (Some(style), value) => pairs(style, name, value),
            // Without a style an object is one JSON text.
            (None, Value::Object(_)) => {
                pairs(Serialization::FORM, name, &Value::from(value.to_string()))
            }
            (None, value) => pairs(Serialization::FORM, name, value),
        };
        encoded.extend(found.into_iter().map(|(name, value)| format!("{name}={value}")));
    }
    encoded.join("&")
}

fn multipart(
    fields: &BTreeMap<String, Field>,
    body: &Map<String, Value>,
) -> Result<RequestBody, InvalidArguments> {
    let mut parts = Vec::new();
    let default = Field::default();
    for (name, value) in body {
        let field = fields.get(name).unwrap_or(&default);
        let values = match value {
            Value::Array(list) => list.iter().collect(),
            one => vec![one],
        };
        for value in values {
            if value.is_null() {
                continue;
            }
            parts.push(if field.is_file {
                file_part(name, field, value)?
            } else {
                value_part(name, field, value)
            });
            if parts.len() > MAX_PARTS {
                return Err(InvalidArguments(format!("body has more than {MAX_PARTS} parts")));
            }
        }
    }
    Ok(RequestBody::Multipart(parts))
}

fn value_part(name: &str, field: &Field, value: &Value) -> Part {
    let json = || (value.is_object() || value.is_array()).then(|| "application/json".to_owned());
    Part {
        name: name.to_owned(),
        file_name: None,
        content_type: field.content_type.clone().or_else(json),
        bytes: text(value).unwrap_or_default().into_bytes(),
    }
}

/// Makes a part of `{"base64": …, "filename": …, "contentType": …}`.
fn file_part(name: &str, field: &Field, value: &Value) -> Result<Part, InvalidArguments> {
    let file = object(name, value)?;
    let label = |key: &str| -> Result<Option<String>, InvalidArguments> {
        let Some(text) = file.get(key).and_then(Value::as_str) else { return Ok(None) };
        let is_label = |c: char| !c.is_control() && c != '"';
        if text.is_empty() || text.len() > MAX_LABEL_BYTES || !text.chars().all(is_label) {
            return Err(InvalidArguments(format!(
                "{key} of {name} must be 1 to {MAX_LABEL_BYTES} bytes without control characters \
                 and quotes"
            )));
        }
        Ok(Some(text.to_owned()))
    };
    let content_type = label("contentType")?.or_else(|| field.content_type.clone());
    Ok(Part {
        name: name.to_owned(),
        file_name: Some(label("filename")?.unwrap_or_else(|| name.to_owned())),
        content_type: Some(content_type.unwrap_or_else(|| "application/octet-stream".to_owned())),
        bytes: decoded(&format!("base64 of {name}"), file.get("base64").unwrap_or(&Value::Null))?,
    })
}
