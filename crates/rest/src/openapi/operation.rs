//! Operations as tools, and their requests.

use std::{borrow::Cow, collections::BTreeMap};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use url::Url;

use super::{
    arguments::BODY,
    body_content::{self, BodyForm},
    encoding::{Target, encode},
    parameters::{Location, ParameterForm},
    path::PathTemplate,
    security::Security,
    style::{self, Pair, Serialization, Style},
};
use crate::request::{BuildRequest, InvalidArguments, RequestBody, RequestParts};

/// Maximum length of the URL of a request, in bytes.
const MAX_URL_BYTES: usize = 32 * 1024;
/// Maximum length of the value of a header, in bytes.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// An operation of a document as a tool. `Debug` does not show credentials.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(super) id: String,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) definition: Definition,
    pub(super) plan: Plan,
}

/// Definition of the tool, for models.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) label: Option<String>,
    pub(super) description: String,
    pub(super) parameters: Value,
    pub(super) hints: ToolHints,
    pub(super) shortened: bool,
}

/// Parts of the document and the configuration that requests are built from.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// URL without a slash at the end.
    pub(super) base: Url,
    pub(super) path: PathTemplate,
    pub(super) arguments: Vec<Argument>,
    pub(super) body: Option<BodyForm>,
    pub(super) accept: Option<HeaderValue>,
    pub(super) security: Security,
}

/// An argument that becomes a parameter.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    /// Name of the argument.
    pub(super) argument: String,
    /// Name of the parameter.
    pub(super) name: String,
    pub(super) location: Location,
    pub(super) required: bool,
    pub(super) form: ParameterForm,
}

impl Operation {
    /// Returns the id in the document, or one made of method and path.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the path as written in the document.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Returns `true` if parts of the schema were left out to keep it small. They accept anything.
    #[must_use]
    pub fn is_shortened(&self) -> bool {
        self.definition.shortened
    }

    /// Returns the definition of the tool, with the source [`ToolSource::Rest`].
    #[must_use]
    pub fn registration(&self, timeout_ms: Option<u64>) -> ToolRegistration {
        ToolRegistration {
            name: self.definition.name.clone(),
            label: self.definition.label.clone(),
            description: self.definition.description.clone(),
            tool_description: None,
            parameters: self.definition.parameters.clone(),
            source: ToolSource::Rest,
            hints: self.definition.hints,
            timeout_ms,
        }
    }

    /// Returns the credentials in the form in which they are sent, so that they can be removed from
    /// results. Access tokens of OAuth clients are not among them.
    #[must_use]
    pub fn secrets(&self) -> Vec<SecretString> {
        self.plan.security.secrets()
    }
}

impl BuildRequest for Operation {
    fn request(&self, arguments: &Map<String, Value>) -> Result<RequestParts, InvalidArguments> {
        let plan = &self.plan;
        let body = match (&plan.body, arguments.get(BODY)) {
            (Some(form), Some(body)) => body_content::encode(form, body)?,
            _ => RequestBody::Empty,
        };
        Ok(RequestParts {
            method: self.method.clone(),
            url: plan.url(arguments)?,
            headers: plan.headers(arguments)?,
            body,
            credentials: plan.security.client.clone(),
        })
    }
}

impl Plan {
    fn given<'v>(
        &self,
        location: Location,
        arguments: &'v Map<String, Value>,
    ) -> Result<Vec<(&Argument, &'v Value)>, InvalidArguments> {
        let mut given = Vec::new();
        for argument in self.arguments.iter().filter(|argument| argument.location == location) {
            match arguments.get(&argument.argument) {
                Some(value) if !value.is_null() => given.push((argument, value)),
                _ if argument.required && location == Location::Path => {
                    return Err(InvalidArguments(format!("{} is required", argument.argument)));
                }
                _ => {}
            }
        }
        Ok(given)
    }

    fn url(&self, arguments: &Map<String, Value>) -> Result<Url, InvalidArguments> {
        let mut values: BTreeMap<&str, String> = BTreeMap::new();
        for (argument, value) in self.given(Location::Path, arguments)? {
            values.insert(&argument.name, in_path(argument, value));
        }
        let expanded = self.path.expand(|name| values.get(name).cloned().unwrap_or_default());
        let (path, fixed) = expanded.map_err(|name| {
            let argument = self.arguments.iter().find(|argument| argument.name == name);
            let name = argument.map_or("a path parameter", |argument| &argument.argument);
            InvalidArguments(format!(
                "{name} is a part of a path and must be neither empty nor contain `.` or `..` as a step of it"
            ))
        })?;
        let query = self.query(fixed, arguments)?;
        let mut text = format!("{}/{path}", self.base.as_str().trim_end_matches('/'));
        if !query.is_empty() {
            text.push('?');
            text.push_str(&query);
        }
        if text.len() > MAX_URL_BYTES {
            return Err(InvalidArguments(format!(
                "the URL would be longer than {MAX_URL_BYTES} bytes; shorten the arguments"
            )));
        }
        let url = Url::parse(&text).ok().filter(|url| self.has_fixed_target(url));
        url.ok_or_else(|| InvalidArguments("the arguments do not fit into the path".to_owned()))
    }

    /// Returns whether a URL has the origin and the number of segments of all requests.
    fn has_fixed_target(&self, url: &Url) -> bool {
        let segments = |path: &str| path.trim_end_matches('/').matches('/').count();
        let expected = segments(self.base.path()) + self.path.segments();
        url.origin() == self.base.origin() && url.path().matches('/').count() == expected
    }

    fn query(
        &self,
        fixed: String,
        arguments: &Map<String, Value>,
    ) -> Result<String, InvalidArguments> {
        let mut parts: Vec<String> = (!fixed.is_empty()).then_some(fixed).into_iter().collect();
        for (argument, value) in self.given(Location::QueryString, arguments)? {
            parts.push(whole_query(argument, value));
        }
        for (argument, value) in self.given(Location::Query, arguments)? {
            let found = in_pairs(argument, value).into_iter();
            parts.extend(found.map(|(name, value)| format!("{name}={value}")));
        }
        parts.retain(|part| !part.is_empty());
        let text = parts.join("&");
        let names = url::form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name);
        check_names(names, &self.security.query)?;
        let secrets = self.security.query.iter();
        parts.extend(secrets.map(|(name, value)| format!("{name}={}", value.expose_secret())));
        Ok(parts.join("&"))
    }

    fn headers(&self, arguments: &Map<String, Value>) -> Result<HeaderMap, InvalidArguments> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = &self.accept {
            headers.insert(header::ACCEPT, accept.clone());
        }
        for (argument, value) in self.given(Location::Header, arguments)? {
            // The name was checked when the document was imported.
            let Ok(name) = HeaderName::from_bytes(argument.name.as_bytes()) else { continue };
            headers.insert(name, header_value(argument, in_header(argument, value))?);
        }
        let mut cookies = Vec::new();
        for (argument, value) in self.given(Location::Cookie, arguments)? {
            for (name, value) in in_pairs(argument, value) {
                let decoded = percent_decode_str(&name).decode_utf8_lossy();
                check_names(std::iter::once(decoded), &self.security.cookies)?;
                if !is_cookie_text(&name) || !is_cookie_text(&value) {
                    return Err(InvalidArguments(format!(
                        "{} must not contain white space, quotes, commas, semicolons or \
                         backslashes",
                        argument.argument
                    )));
                }
                cookies.push(format!("{name}={value}"));
            }
        }
        let secrets = self.security.cookies.iter();
        cookies.extend(secrets.map(|(name, value)| format!("{name}={}", value.expose_secret())));
        if !cookies.is_empty()
            && let Ok(mut value) = HeaderValue::from_str(&cookies.join("; "))
        {
            value.set_sensitive(true);
            headers.insert(header::COOKIE, value);
        }
        headers.extend(self.security.headers.iter().cloned());
        Ok(headers)
    }
}

/// Checks that no decoded name, which may come from the arguments, is that of a credential.
fn check_names<'n>(
    names: impl Iterator<Item = Cow<'n, str>>,
    credentials: &[(String, SecretString)],
) -> Result<(), InvalidArguments> {
    let reserved: Vec<_> =
        credentials.iter().map(|(name, _)| percent_decode_str(name).decode_utf8_lossy()).collect();
    for name in names {
        if reserved.contains(&name) {
            return Err(InvalidArguments(
                "the arguments must not contain the name of a credential".to_owned(),
            ));
        }
    }
    Ok(())
}

fn in_path(argument: &Argument, value: &Value) -> String {
    match argument.form {
        ParameterForm::Styled(how) => style::inline(how, &argument.name, value, Target::Path),
        form => encode(&whole_text(form, value), Target::Path, false),
    }
}

fn in_header(argument: &Argument, value: &Value) -> String {
    match argument.form {
        ParameterForm::Styled(how) => style::inline(how, &argument.name, value, Target::Raw),
        form => whole_text(form, value),
    }
}

fn in_pairs(argument: &Argument, value: &Value) -> Vec<Pair> {
    match argument.form {
        ParameterForm::Styled(how) => style::pairs(how, &argument.name, value),
        form => {
            let how = Serialization { style: Style::Form, explode: false, reserved: false };
            style::pairs(how, &argument.name, &Value::from(whole_text(form, value)))
        }
    }
}

fn whole_query(argument: &Argument, value: &Value) -> String {
    match (argument.form, value) {
        (ParameterForm::Styled(_), Value::Object(fields)) => {
            body_content::form_text(&BTreeMap::new(), fields)
        }
        (form, value) => encode(&whole_text(form, value), Target::Query, false),
    }
}

fn whole_text(form: ParameterForm, value: &Value) -> String {
    match form {
        ParameterForm::Json => value.to_string(),
        _ => style::text(value).unwrap_or_default(),
    }
}

/// Checks the value of a header: visible ASCII and spaces.
fn header_value(argument: &Argument, text: String) -> Result<HeaderValue, InvalidArguments> {
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = HeaderValue::try_from(text).ok();
    let value = value.filter(|value| is_visible && value.len() <= MAX_HEADER_BYTES);
    value.ok_or_else(|| {
        InvalidArguments(format!(
            "{} must be visible ASCII characters, at most {MAX_HEADER_BYTES}",
            argument.argument
        ))
    })
}

fn is_cookie_text(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'!'..=b'~') && !b"\";\\".contains(&byte))
}
