//! Path templates.

use super::encoding::{encode_fixed_query, encode_template, is_dot_segment};
use crate::template::is_unsafe;

/// Maximum length of a path template, in bytes.
const MAX_TEMPLATE_BYTES: usize = 4096;

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Encoded text.
    Fixed(String),
    /// Name of a parameter.
    Parameter(String),
}

/// A path template: `/users/{id}`, with the query that it may end in. A fragment is dropped, because
/// some documents use it to tell operations on one path apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathTemplate {
    segments: Vec<Vec<Piece>>,
    query: Vec<Piece>,
}

impl PathTemplate {
    /// Parses the path of an operation.
    ///
    /// # Errors
    /// Returns the reason why requests cannot be sent to it.
    pub(super) fn parse(path: &str) -> Result<Self, &'static str> {
        if path.len() > MAX_TEMPLATE_BYTES {
            return Err("its path is longer than 4096 bytes");
        }
        let Some(path) = path.strip_prefix('/') else {
            return Err("its path does not begin with \"/\"");
        };
        let (path, query) = split_query(path);
        let segments: Vec<_> = split_segments(path).into_iter().map(pieces_of_segment).collect();
        let is_dots = |segment: &Vec<Piece>| match segment.as_slice() {
            [Piece::Fixed(text)] => is_dot_segment(text),
            _ => false,
        };
        if segments.iter().any(is_dots) {
            return Err("its path contains the segment \".\" or \"..\"");
        }
        Ok(Self { segments, query: pieces(query, encode_fixed_query) })
    }

    /// Returns the names of its parameters, without repetitions.
    pub(super) fn parameters(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for piece in self.segments.iter().flatten().chain(&self.query) {
            if let Piece::Parameter(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// Returns the number of its segments.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the path without the first `/`, and the query, with encoded values.
    ///
    /// # Errors
    /// Returns the name of the parameter whose value would make an empty segment, or a dot segment where a
    /// server decodes slashes.
    pub(super) fn expand(
        &self,
        value: impl Fn(&str) -> String,
    ) -> Result<(String, String), String> {
        let expand = |pieces: &[Piece]| -> String {
            let texts = pieces.iter().map(|piece| match piece {
                Piece::Fixed(text) => text.clone(),
                Piece::Parameter(name) => value(name),
            });
            texts.collect()
        };
        let mut path = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let text = expand(segment);
            let parameter = segment.iter().find_map(|piece| match piece {
                Piece::Parameter(name) => Some(name),
                Piece::Fixed(_) => None,
            });
            if let Some(name) = parameter
                && is_unsafe(&text)
            {
                return Err(name.clone());
            }
            path.push(text);
        }
        Ok((path.join("/"), expand(&self.query)))
    }
}

/// Splits at the first `?` and drops from the first `#`, both outside of braces.
fn split_query(path: &str) -> (&str, &str) {
    let outside = |wanted: char, text: &str| {
        let mut is_inside = false;
        text.find(|c| {
            is_inside = (is_inside || c == '{') && c != '}';
            !is_inside && c == wanted
        })
    };
    let path = outside('#', path).map_or(path, |end| &path[..end]);
    outside('?', path).map_or((path, ""), |end| (&path[..end], &path[end + 1..]))
}

/// Splits at each `/` outside of braces.
fn split_segments(path: &str) -> Vec<&str> {
    let mut is_inside = false;
    path.split(|c| {
        is_inside = (is_inside || c == '{') && c != '}';
        !is_inside && c == '/'
    })
    .collect()
}

fn pieces_of_segment(segment: &str) -> Vec<Piece> {
    pieces(segment, encode_template)
}

fn pieces(text: &str, encode: fn(&str) -> String) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, name, after)) = next_parameter(rest) {
        if !before.is_empty() {
            pieces.push(Piece::Fixed(encode(before)));
        }
        pieces.push(Piece::Parameter(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Fixed(encode(rest)));
    }
    pieces
}

fn next_parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    (!name.is_empty()).then_some((before, name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(path: &str, value: &str) -> Result<(String, String), String> {
        PathTemplate::parse(path).unwrap().expand(|_| value.to_owned())
    }

    #[test]
    fn templates_keep_fixed_text() {
        let expected = Ok(("a/7.json".to_owned(), "x=7&y=1".to_owned()));
        assert_eq!(expanded("/a/{id}.json?x={id}&y=1#z", "7"), expected);
        assert_eq!(expanded("/", "7"), Ok((String::new(), String::new())));
        assert_eq!(expanded("/a\\b\t{c", "7").unwrap().0, "a%5Cb%09%7Bc");
    }

    #[test]
    fn values_cannot_make_dot_segments() {
        assert_eq!(expanded("/a/{id}", ".."), Err("id".to_owned()));
        assert_eq!(expanded("/a/.{id}", "."), Err("id".to_owned()));
        assert_eq!(expanded("/a/{id}/b", ""), Err("id".to_owned()));
        for step in ["..%2F..%2Fx", "x%2F..", "..%5Cx", ".%2Fx", "%00", ";id=..%2F..%2Fx", "..%3Bx"]
        {
            assert_eq!(expanded("/a/{id}", step), Err("id".to_owned()), "{step}");
        }
        assert_eq!(expanded("/a/{id}", "a%2Fb..c").unwrap().0, "a/a%2Fb..c");
        for path in ["/a/../b", "/./b", "/%2E%2e", "b"] {
            assert!(PathTemplate::parse(path).is_err(), "{path}");
        }
    }
}
