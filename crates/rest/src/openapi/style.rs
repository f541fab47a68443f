//! Styles of parameters: the text that a value becomes.
//!
//! Values are flattened to a text, a list of texts, or pairs of texts. Deeper values become compact
//! JSON, except in the style `deepObject`. Null is left out.

use serde_json::Value;

use super::encoding::{Target, encode};

/// Style of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `blue,black`
    Simple,
    /// `.blue.black`
    Label,
    /// `;color=blue;color=black`
    Matrix,
    /// `color=blue&color=black`
    Form,
    /// `color=blue%20black`
    SpaceDelimited,
    /// `color=blue%7Cblack`
    PipeDelimited,
    /// `color=blue%09black`, of Swagger 2.0
    TabDelimited,
    /// `color[R]=100`, with encoded brackets
    DeepObject,
    /// `color=blue; color=black` without encoding, of `OpenAPI` 3.2
    Cookie,
}

impl Style {
    /// Returns the style of a name in a document.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "simple" => Self::Simple,
            "label" => Self::Label,
            "matrix" => Self::Matrix,
            "form" => Self::Form,
            "spaceDelimited" => Self::SpaceDelimited,
            "pipeDelimited" => Self::PipeDelimited,
            "tabDelimited" => Self::TabDelimited,
            "deepObject" => Self::DeepObject,
            "cookie" => Self::Cookie,
            _ => return None,
        })
    }

    /// Returns the default of `explode`.
    pub(super) fn explodes_by_default(self) -> bool {
        matches!(self, Self::Form | Self::Cookie)
    }
}

/// A style with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Serialization {
    pub(super) style: Style,
    pub(super) explode: bool,
    /// Keeps reserved characters.
    pub(super) reserved: bool,
}

impl Serialization {
    pub(super) const FORM: Self = Self { style: Style::Form, explode: true, reserved: false };
}

/// A name and a value of a query, a form or a cookie.
pub(super) type Pair = (String, String);

enum Flat {
    Text(String),
    List(Vec<String>),
    Pairs(Vec<Pair>),
}

fn flatten(value: &Value) -> Option<Flat> {
    Some(match value {
        Value::Null => return None,
        Value::Array(list) => Flat::List(list.iter().filter_map(text).collect()),
        Value::Object(map) => Flat::Pairs(
            map.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect(),
        ),
        other => Flat::Text(text(other)?),
    })
}

/// Returns the text of a single value: strings as they are, others as JSON. Null has none.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn joined(pairs: &[Pair], between: &str, separator: &str) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}{between}{value}"));
    pairs.collect::<Vec<_>>().join(separator)
}

/// Returns the text of a value in a path segment or in a header.
pub(super) fn inline(how: Serialization, name: &str, value: &Value, target: Target) -> String {
    let encoded = |text: &str| encode(text, target, how.reserved);
    let Some(flat) = flatten(value).map(|flat| encode_flat(flat, &encoded)) else {
        return String::new();
    };
    let name = encode(name, target, false);
    match (how.style, flat) {
        (Style::Label, Flat::Text(text)) => format!(".{text}"),
        (Style::Label, Flat::List(list)) => {
            format!(".{}", list.join(if how.explode { "." } else { "," }))
        }
        (Style::Label, Flat::Pairs(pairs)) if how.explode => {
            format!(".{}", joined(&pairs, "=", "."))
        }
        (Style::Label, Flat::Pairs(pairs)) => format!(".{}", joined(&pairs, ",", ",")),
        (Style::Matrix, Flat::Text(text)) if text.is_empty() => format!(";{name}"),
        (Style::Matrix, Flat::Text(text)) => format!(";{name}={text}"),
        (Style::Matrix, Flat::List(list)) if how.explode => {
            list.iter().map(|text| format!(";{name}={text}")).collect()
        }
        (Style::Matrix, Flat::List(list)) => format!(";{name}={}", list.join(",")),
        (Style::Matrix, Flat::Pairs(pairs)) if how.explode => {
            format!(";{}", joined(&pairs, "=", ";"))
        }
        (Style::Matrix, Flat::Pairs(pairs)) => format!(";{name}={}", joined(&pairs, ",", ",")),
        (_, Flat::Text(text)) => text,
        (_, Flat::List(list)) => list.join(","),
        (_, Flat::Pairs(pairs)) if how.explode => joined(&pairs, "=", ","),
        (_, Flat::Pairs(pairs)) => joined(&pairs, ",", ","),
    }
}

fn encode_flat(flat: Flat, encoded: &dyn Fn(&str) -> String) -> Flat {
    match flat {
        Flat::Text(text) => Flat::Text(encoded(&text)),
        Flat::List(list) => Flat::List(list.iter().map(|text| encoded(text)).collect()),
        Flat::Pairs(pairs) => {
            Flat::Pairs(pairs.iter().map(|(name, value)| (encoded(name), encoded(value))).collect())
        }
    }
}

/// Returns the encoded pairs of a value in a query, a form or a cookie. Empty lists and objects have
/// none.
pub(super) fn pairs(how: Serialization, name: &str, value: &Value) -> Vec<Pair> {
    let target = if how.style == Style::Cookie { Target::Raw } else { Target::Query };
    let encoded = |text: &str| encode(text, target, how.reserved);
    let plain = encode(name, target, false);
    if how.style == Style::DeepObject && (value.is_object() || value.is_array()) {
        let mut found = Vec::new();
        deep_pairs(&plain, value, &encoded, &mut found);
        return found;
    }
    let Some(flat) = flatten(value).map(|flat| encode_flat(flat, &encoded)) else {
        return Vec::new();
    };
    let (delimiter, explode) = match how.style {
        Style::SpaceDelimited => ("%20", how.explode),
        Style::PipeDelimited => ("%7C", how.explode),
        Style::TabDelimited => ("%09", how.explode),
        Style::DeepObject => (",", true),
        _ => (",", how.explode),
    };
    match flat {
        Flat::Text(text) => vec![(plain, text)],
        Flat::List(list) if list.is_empty() => Vec::new(),
        Flat::List(list) if explode => list.into_iter().map(|text| (plain.clone(), text)).collect(),
        Flat::List(list) => vec![(plain, list.join(delimiter))],
        Flat::Pairs(pairs) if pairs.is_empty() || explode => pairs,
        Flat::Pairs(pairs) => vec![(plain, joined(&pairs, delimiter, delimiter))],
    }
}

/// Appends `a[b][c]=d` for objects in objects, and repeats the name for each item of an array.
fn deep_pairs(name: &str, value: &Value, encoded: &dyn Fn(&str) -> String, found: &mut Vec<Pair>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let name = format!("{name}%5B{}%5D", encode(key, Target::Query, false));
                deep_pairs(&name, inner, encoded, found);
            }
        }
        Value::Array(list) => {
            for item in list {
                found.extend(text(item).map(|text| (name.to_owned(), encoded(&text))));
            }
        }
        other => found.extend(text(other).map(|text| (name.to_owned(), encoded(&text)))),
    }
}
