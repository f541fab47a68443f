//! Parameters of an operation, as a document declares them.

use serde_json::{Map, Value};

use super::{
    body_content::MediaKind,
    references::Resolver,
    style::{Serialization, Style},
};

/// Maximum number of parameters of one operation.
const MAX_PARAMETERS: usize = 500;

/// Part of a request that holds a parameter. The order decides which of several parameters with one
/// name keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Path,
    Query,
    /// The whole query.
    QueryString,
    Header,
    Cookie,
}

impl Location {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "path" => Self::Path,
            "query" => Self::Query,
            "querystring" => Self::QueryString,
            "header" => Self::Header,
            "cookie" => Self::Cookie,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::QueryString => "querystring",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }

    fn default_style(self) -> Style {
        match self {
            Self::Path | Self::Header => Style::Simple,
            Self::Query | Self::QueryString | Self::Cookie => Style::Form,
        }
    }

    fn permits(self, style: Style) -> bool {
        match self {
            Self::Path => matches!(style, Style::Simple | Style::Label | Style::Matrix),
            Self::Header => style == Style::Simple,
            Self::Cookie => matches!(style, Style::Form | Style::Cookie),
            Self::Query | Self::QueryString => matches!(
                style,
                Style::Form
                    | Style::SpaceDelimited
                    | Style::PipeDelimited
                    | Style::TabDelimited
                    | Style::DeepObject
            ),
        }
    }
}

/// The text that the value of a parameter becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterForm {
    /// By style.
    Styled(Serialization),
    /// JSON.
    Json,
    /// Text as it is, or JSON of other values.
    Text,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) location: Location,
    pub(super) required: bool,
    pub(super) form: ParameterForm,
    pub(super) schema: Option<&'a Value>,
    pub(super) description: Option<&'a Value>,
}

/// Returns the parameters of an operation and those of its path that it does not replace, path
/// parameters first.
///
/// # Errors
/// Returns the reason why the operation cannot be called.
pub(super) fn collect<'a>(
    resolver: &Resolver<'a>,
    path_item: &'a Value,
    operation: &'a Value,
) -> Result<Vec<Parameter<'a>>, String> {
    let mut found: Vec<Parameter<'a>> = Vec::new();
    for holder in [path_item, operation] {
        for declared in holder["parameters"].as_array().into_iter().flatten() {
            let declared = resolver.follow(declared).map_err(|error| format!("it {error}"))?;
            let Some(parameter) = parameter(resolver, declared)? else { continue };
            let same = |other: &&mut Parameter<'a>| {
                other.name == parameter.name && other.location == parameter.location
            };
            match found.iter_mut().find(same) {
                Some(replaced) => *replaced = parameter,
                None => found.push(parameter),
            }
            if found.len() > MAX_PARAMETERS {
                return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
            }
        }
    }
    found.sort_by_key(|parameter| parameter.location);
    Ok(found)
}

fn parameter<'a>(
    resolver: &Resolver<'a>,
    declared: &'a Value,
) -> Result<Option<Parameter<'a>>, String> {
    let is = |field: &str| declared[field] == true;
    let (Some(name), Some(place)) = (declared["name"].as_str(), declared["in"].as_str()) else {
        return Ok(None);
    };
    let Some(location) = Location::from_name(place).filter(|_| !name.is_empty()) else {
        let place = place.escape_debug().take(40).collect::<String>();
        let reason = format!("it requires a parameter in \"{place}\", which is unknown");
        return if is("required") { Err(reason) } else { Ok(None) };
    };
    let content = declared["content"].as_object().and_then(|content| content.iter().next());
    let (form, schema) = match content {
        Some((media_type, media)) => {
            let media = resolver.follow(media).map_err(|error| format!("it {error}"))?;
            (content_form(location, media_type), media.get("schema"))
        }
        None => (ParameterForm::Styled(serialization(location, declared)), declared.get("schema")),
    };
    Ok(Some(Parameter {
        name,
        location,
        required: location == Location::Path || is("required"),
        form,
        schema,
        description: declared.get("description"),
    }))
}

fn content_form(location: Location, media_type: &str) -> ParameterForm {
    match MediaKind::new(media_type) {
        MediaKind::Json => ParameterForm::Json,
        MediaKind::Form if location == Location::QueryString => {
            ParameterForm::Styled(Serialization::FORM)
        }
        _ => ParameterForm::Text,
    }
}

/// Returns the style of a parameter. One that its location does not permit is the default one.
fn serialization(location: Location, declared: &Value) -> Serialization {
    let style = declared["style"].as_str().and_then(Style::from_name);
    let style = style.filter(|style| location.permits(*style));
    let style = style.unwrap_or_else(|| location.default_style());
    settings(style, declared.as_object())
}

/// Returns a style with the settings beside it.
pub(super) fn settings(style: Style, beside: Option<&Map<String, Value>>) -> Serialization {
    let flag = |name: &str| beside.and_then(|fields| fields.get(name)).and_then(Value::as_bool);
    Serialization {
        style,
        explode: flag("explode").unwrap_or_else(|| style.explodes_by_default()),
        reserved: flag("allowReserved").unwrap_or_default(),
    }
}
