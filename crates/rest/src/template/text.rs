//! A text with placeholders.

use std::{borrow::Cow, fmt};

use rockbot_service::expand;
use serde_json::{Map, Value};

use super::{environment::Environment, error::TemplateError};

/// A text whose variables are expanded and whose parameters are filled in for each call.
///
/// `Debug` shows only the names of parameters: the text may hold the values of variables.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

/// A part of a template.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Parameter(ParameterPath),
}

/// Path of a parameter: its name, and names of members below it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ParameterPath(Vec<String>);

impl ParameterPath {
    fn parse(path: &str) -> Result<Self, TemplateError> {
        let names: Vec<_> = path.split('.').map(str::to_owned).collect();
        if names.iter().any(String::is_empty) {
            return Err(TemplateError::new("`${parameters.}` without a name"));
        }
        Ok(Self(names))
    }

    /// Returns the names, the parameter's first. At least one.
    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the value in the arguments of a call.
    pub(super) fn find<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))
    }
}

impl fmt::Display for ParameterPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl Template {
    /// Parses a text: `${parameters.NAME}` is filled in by calls, `${NAME}` and `${NAME:-default}` are
    /// expanded now, `$${` is a literal `${`. Expanded values are not parsed again.
    ///
    /// # Errors
    /// When a placeholder is not closed or has no name.
    pub(crate) fn parse(
        text: &str,
        environment: &mut Environment<'_>,
    ) -> Result<Self, TemplateError> {
        let pieces = environment.expand(text)?.into_iter().map(|piece| match piece {
            expand::Piece::Text(text) => Ok(Piece::Text(text)),
            expand::Piece::Placeholder(path) => ParameterPath::parse(&path).map(Piece::Parameter),
        });
        pieces.collect::<Result<_, _>>().map(|pieces| Self { pieces })
    }

    /// Creates a template without placeholders.
    pub(super) fn literal(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Text(text.into())] }
    }

    pub(super) fn from_pieces(pieces: Vec<Piece>) -> Self {
        let mut template = Self { pieces: Vec::new() };
        for piece in pieces {
            match piece {
                Piece::Text(text) => template.push_text(&text),
                parameter @ Piece::Parameter(_) => template.pieces.push(parameter),
            }
        }
        template
    }

    fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the parameters in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &ParameterPath> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Parameter(path) => Some(path),
        })
    }

    /// Returns `true` if calls fill in a part of it.
    pub(super) fn has_parameters(&self) -> bool {
        self.parameters().next().is_some()
    }

    /// Returns the text of a template without parameters.
    pub(crate) fn into_text(self) -> Option<String> {
        let mut whole = String::new();
        for piece in self.pieces {
            match piece {
                Piece::Text(text) => whole.push_str(&text),
                Piece::Parameter(_) => return None,
            }
        }
        Some(whole)
    }

    /// Returns the value for a call. A template that is one placeholder keeps the type of the argument;
    /// any other is a text. `None` if an argument is absent.
    pub(super) fn value<'a>(&self, arguments: &'a Map<String, Value>) -> Option<Cow<'a, Value>> {
        match self.pieces.as_slice() {
            [Piece::Parameter(path)] => path.find(arguments).map(Cow::Borrowed),
            _ => self.text(arguments).map(|text| Cow::Owned(Value::String(text))),
        }
    }

    /// Returns the text for a call. `None` if an argument is absent or null.
    pub(super) fn text(&self, arguments: &Map<String, Value>) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Parameter(path) => filled.push_str(&text_of(path.find(arguments)?)?),
            }
        }
        Some(filled)
    }
}

/// Returns an argument as text: objects and arrays as compact JSON. `None` for null.
pub(super) fn text_of(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        other => Some(Cow::Owned(other.to_string())),
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters().map(ToString::to_string);
        f.debug_tuple("Template").field(&parameters.collect::<Vec<_>>()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Template, TemplateError> {
        let lookup = |name: &str| (name == "KEY").then(|| "v${parameters.a}".to_owned());
        Template::parse(text, &mut Environment::new(&lookup))
    }

    #[expect(clippy::needless_pass_by_value, reason = "short at the call")]
    #[track_caller]
    fn check(text: &str, expected: Option<Value>) {
        let Value::Object(arguments) = json!({
            "s": "text", "n": 7, "b": true, "z": null, "o": {"x": {"y": [1, "2"]}},
        }) else {
            unreachable!()
        };
        let value = parse(text).unwrap().value(&arguments).map(Cow::into_owned);
        assert_eq!(value, expected, "{text}");
    }

    #[test]
    fn placeholder_alone_keeps_its_type() {
        check("${parameters.s}", Some(json!("text")));
        check("${parameters.n}", Some(json!(7)));
        check("${parameters.z}", Some(Value::Null));
        check("${parameters.o}", Some(json!({"x": {"y": [1, "2"]}})));
        check("${parameters.o.x.y}", Some(json!([1, "2"])));
        check("${parameters.none}", None);
        check("${parameters.s.none}", None);
    }

    #[test]
    fn placeholders_in_text_are_filled_in() {
        check(
            "a ${parameters.n}${parameters.b} ${parameters.o.x.y}",
            Some(json!("a 7true [1,\"2\"]")),
        );
        check("x${parameters.z}", None);
        check("x${parameters.none}", None);
        check("$${parameters.n} $ { }", Some(json!("${parameters.n} $ { }")));
        check("${KEY} ${NONE:-d:-e}", Some(json!("v${parameters.a} d:-e")));
        check("", Some(json!("")));
    }

    #[test]
    fn invalid_placeholders_are_rejected() {
        for text in ["${KEY", "${parameters.}", "${parameters.a..b}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", parse("${KEY}/${parameters.a.b}")), "Ok(Template([\"a.b\"]))");
    }
}
