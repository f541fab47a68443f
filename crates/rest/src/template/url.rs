//! URLs with placeholders.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use url::Url;

use super::{
    error::TemplateError,
    text::{ParameterPath, Piece, Template, text_of},
};
use crate::request::InvalidArguments;

/// Characters of a path segment that are written as they are.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Maximum length of a URL, in bytes. Many servers accept no more.
pub(super) const MAX_URL_BYTES: usize = 16 * 1024;

/// A URL whose path segments and query values may have placeholders.
#[derive(Debug, Clone)]
pub(super) struct UrlTemplate {
    /// Scheme, host and port.
    origin: Url,
    /// Path segments; their text is percent-encoded.
    segments: Vec<Template>,
    /// Query of the URL, decoded.
    pub(super) query: Vec<(String, Template)>,
}

impl UrlTemplate {
    /// Creates the template from a text with placeholders.
    ///
    /// # Errors
    /// When the URL is not absolute, has user information or a fragment, or a placeholder stands
    /// anywhere but in a path segment or in the value of a query key.
    pub(super) fn new(text: &Template) -> Result<Self, TemplateError> {
        let marks = Marks::new(text);
        let mut url = Url::parse(&marks.marked).map_err(|error| {
            TemplateError(format!(
                "url: {error}; write an absolute URL with placeholders only in path segments and \
                 values of the query"
            ))
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TemplateError::new("url: its scheme must be https or http"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TemplateError::new(
                "url: it must not contain user information; set an Authorization header",
            ));
        }
        if url.fragment().is_some() {
            return Err(TemplateError::new(
                "url: it must not have a fragment, which is never sent",
            ));
        }
        let query = url.query_pairs().map(|(name, value)| {
            if marks.contained_in(&name) {
                return Err(TemplateError::new("url: a query key must not have a placeholder"));
            }
            Ok((name.into_owned(), marks.template(&value)))
        });
        let query = query.collect::<Result<Vec<_>, _>>()?;
        let path = url.path().strip_prefix('/').unwrap_or_default().to_owned();
        let segments: Vec<_> = path.split('/').map(|segment| marks.template(segment)).collect();
        url.set_path("");
        url.set_query(None);
        let placed = segments.iter().chain(query.iter().map(|(_, value)| value));
        if placed.flat_map(Template::parameters).count() != marks.paths.len() {
            return Err(TemplateError::new(
                "url: a placeholder must not be a part of the scheme, the host or the port, nor be \
                 followed by `..`",
            ));
        }
        Ok(Self { origin: url, segments, query })
    }

    /// Returns the parameters in path segments, which must not be absent.
    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &ParameterPath> {
        self.segments.iter().flat_map(Template::parameters)
    }

    /// Returns scheme, host and port.
    pub(super) fn origin(&self) -> &Url {
        &self.origin
    }

    /// Returns the URL for a call, without a query.
    ///
    /// # Errors
    /// When an argument is absent, or would change the segments of the path.
    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Result<Url, InvalidArguments> {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            path.push_str(&fill_segment(segment, arguments)?);
        }
        if path.len() > MAX_URL_BYTES {
            return Err(too_long());
        }
        let mut url = self.origin.clone();
        url.set_path(&path);
        let segments = url.path_segments().map_or(0, Iterator::count);
        if url.origin() != self.origin.origin() || segments != self.segments.len() {
            return Err(InvalidArguments("the arguments would change the path".to_owned()));
        }
        Ok(url)
    }
}

pub(super) fn too_long() -> InvalidArguments {
    InvalidArguments(format!("the URL would exceed {MAX_URL_BYTES} bytes; send shorter arguments"))
}

/// Returns a path segment for a call, percent-encoded.
fn fill_segment(
    segment: &Template,
    arguments: &Map<String, Value>,
) -> Result<String, InvalidArguments> {
    let mut filled = String::new();
    for piece in segment.pieces() {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Parameter(path) => {
                let value = path.find(arguments).and_then(text_of);
                let value = value.ok_or_else(|| InvalidArguments(format!("{path} is missing")))?;
                filled.extend(utf8_percent_encode(&value, UNRESERVED));
            }
        }
    }
    match segment.parameters().next() {
        Some(parameter) if is_unsafe(&filled) => Err(InvalidArguments(format!(
            "{parameter} is a part of a path and must be neither empty nor contain `.` or `..` as a \
             step of it"
        ))),
        _ => Ok(filled),
    }
}

/// Returns `true` if a server could read the segment as a step to another path: it is empty or a dot
/// segment, or becomes one where encoded slashes are decoded or what follows a `;` is ignored.
pub(crate) fn is_unsafe(encoded: &str) -> bool {
    let decoded = percent_decode_str(encoded).decode_utf8_lossy();
    decoded.is_empty()
        || decoded.split(['/', '\\']).any(|step| matches!(step.split(';').next(), Some("." | "..")))
        || decoded.contains('\0')
}

/// The placeholders of a URL, replaced by marks so that it can be parsed.
struct Marks {
    /// Text that occurs nowhere else in the URL.
    prefix: String,
    marked: String,
    paths: Vec<ParameterPath>,
}

impl Marks {
    fn new(template: &Template) -> Self {
        let texts = template.pieces().iter().map(|piece| match piece {
            Piece::Text(text) => text.to_ascii_lowercase(),
            Piece::Parameter(_) => String::new(),
        });
        let texts: Vec<_> = texts.collect();
        let mut prefix = "parameterq".to_owned();
        while texts.iter().any(|text| text.contains(&prefix)) {
            prefix.push('q');
        }
        let mut marks = Self { prefix, marked: String::new(), paths: Vec::new() };
        for piece in template.pieces() {
            match piece {
                Piece::Text(text) => marks.marked.push_str(text),
                Piece::Parameter(path) => {
                    let mark = marks.mark(marks.paths.len());
                    marks.marked.push_str(&mark);
                    marks.paths.push(path.clone());
                }
            }
        }
        marks
    }

    fn mark(&self, index: usize) -> String {
        format!("{}{index}z", self.prefix)
    }

    fn contained_in(&self, text: &str) -> bool {
        text.contains(&self.prefix)
    }

    /// Returns a part of the parsed URL with placeholders in place of the marks.
    fn template(&self, text: &str) -> Template {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find(&self.prefix) {
            let after = &rest[at + self.prefix.len()..];
            let parsed = after.split_once('z').and_then(|(index, after)| {
                Some((self.paths.get(index.parse::<usize>().ok()?)?, after))
            });
            let Some((path, after)) = parsed else { break };
            pieces.push(Piece::Text(rest[..at].to_owned()));
            pieces.push(Piece::Parameter(path.clone()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Template::from_pieces(pieces)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::template::Environment;

    fn template(text: &str) -> Result<UrlTemplate, TemplateError> {
        let lookup = |name: &str| (name == "BASE").then(|| "https://api.example.com/v1".to_owned());
        UrlTemplate::new(&Template::parse(text, &mut Environment::new(&lookup))?)
    }

    fn fill(text: &str, value: Value) -> Result<String, InvalidArguments> {
        let arguments = Map::from_iter([("x".to_owned(), value)]);
        template(text).unwrap().fill(&arguments).map(Url::into)
    }

    #[test]
    fn placeholders_stand_only_in_path_and_query_values() {
        for text in [
            "${parameters.x}",
            "${parameters.x}://a/",
            "https://${parameters.x}/",
            "https://a.${parameters.x}/",
            "https://a:${parameters.x}/",
            "https://${parameters.x}@a/",
            "https://u:${parameters.x}@a/",
            "https://a/${parameters.x}/..",
            "https://a/b?${parameters.x}=1",
            "https://a/#${parameters.x}",
            "https://a/#b",
            "https://u@a/",
            "ftp://a/",
            "/relative",
            "",
        ] {
            assert!(template(text).is_err(), "{text}");
        }
        let url = template("${BASE}/${parameters.x}/now?q=a%20${parameters.y}&z=").unwrap();
        assert_eq!(url.origin().as_str(), "https://api.example.com/");
        assert_eq!((url.segments.len(), url.query.len()), (3, 2));
        assert_eq!(url.path_parameters().count(), 1);
    }

    #[test]
    fn path_arguments_are_encoded() {
        let text = "https://a/v1/${parameters.x}/now";
        let filled = fill(text, json!("a b/?#%é~")).unwrap();
        assert_eq!(filled, "https://a/v1/a%20b%2F%3F%23%25%C3%A9~/now");
        assert_eq!(fill(text, json!(7)).unwrap(), "https://a/v1/7/now");
        assert_eq!(fill("https://a/x${parameters.x}", json!("")).unwrap(), "https://a/x");
        let marked = fill("https://a/parameterq0z/${parameters.x}", json!("b")).unwrap();
        assert_eq!(marked, "https://a/parameterq0z/b");
    }

    #[test]
    fn arguments_that_leave_the_path_are_rejected() {
        let text = "https://a/v1/${parameters.x}/now";
        for value in ["", ".", "..", "..;x", "../b", "b/..", "b\\..\\c", "a/./b", "\0"] {
            assert!(fill(text, json!(value)).is_err(), "{value:?}");
        }
        assert!(fill(text, Value::Null).is_err());
        assert!(fill("https://a/.${parameters.x}/b", json!(".")).is_err());
        assert!(fill("https://a/%2e${parameters.x}/b", json!("")).is_err());
        assert!(fill(text, json!("x".repeat(20_000))).is_err());
    }
}
