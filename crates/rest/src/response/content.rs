//! The content of a response.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use encoding_rs::{Encoding, UTF_8};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use rockbot_tools::{ContentBlock, ToolResult};
use serde_json::json;

use super::json::{compact, count, select};

/// Maximum size of an image that a model is shown, in bytes.
const MAX_IMAGE_BYTES: usize = 512 * 1024;
/// Images that models read.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A response whose body was read.
pub(crate) struct ReceivedResponse<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// At most as many bytes as the tool's limit.
    pub(crate) body: &'a [u8],
    /// The body has no further bytes.
    pub(crate) is_complete: bool,
    /// Query of the next page of a list.
    pub(crate) next_page: Option<String>,
}

impl ReceivedResponse<'_> {
    /// Returns the result for a model: compact JSON, text, an image, or a note on any other content.
    /// `pointer` selects a part of JSON.
    pub(crate) fn into_result(self, pointer: Option<&str>) -> ToolResult {
        let details = json!({
            "status": self.status.as_u16(), "contentType": self.essence(), "bytes": self.body.len(),
        });
        let mut result = self.content(pointer);
        if !self.is_complete {
            let note =
                format!("[the response exceeds {} bytes; the rest was not read]", self.body.len());
            result.content.push(ContentBlock::Text { text: note });
        }
        if let Some(next) = &self.next_page {
            result.content.push(ContentBlock::Text { text: format!("next page: {next}") });
        }
        result.with_details(details)
    }

    fn content(&self, pointer: Option<&str>) -> ToolResult {
        let kind = self.essence();
        if self.body.is_empty() {
            return ToolResult::text(format!("({}: done, no content)", self.status.as_u16()));
        }
        if IMAGES.contains(&kind.as_str()) && self.is_complete && self.body.len() <= MAX_IMAGE_BYTES
        {
            let data = BASE64_STANDARD.encode(self.body);
            let image = ContentBlock::Image { data, mime_type: kind };
            return ToolResult { content: vec![image], ..ToolResult::default() };
        }
        let Some(text) = self.text(&kind) else {
            let kind = if kind.is_empty() { "unknown type" } else { &kind };
            let bytes = self.body.len();
            return ToolResult::text(format!("(binary content: {kind}, {bytes} bytes; not shown)"));
        };
        let may_be_json = kind.is_empty() || kind.ends_with("json") || pointer.is_some();
        match may_be_json.then(|| json_text(&text, pointer)) {
            Some(Ok(json)) => ToolResult::text(json),
            Some(Err(Problem::NothingThere)) => ToolResult::error(format!(
                "the response has no value at {}; it is: {}",
                pointer.unwrap_or_default(),
                text.chars().take(2000).collect::<String>()
            )),
            _ => ToolResult::text(text),
        }
    }

    /// Returns the media type in lower case, without its parameters.
    fn essence(&self) -> String {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let essence = kind.unwrap_or_default().split(';').next().unwrap_or_default();
        essence.trim().chars().take(100).collect::<String>().to_ascii_lowercase()
    }

    /// Returns the body as text; `None` if it is not text.
    fn text(&self, kind: &str) -> Option<String> {
        const TEXTS: [&str; 6] =
            ["json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "csv"];
        let is_text = kind.starts_with("text/") || TEXTS.iter().any(|text| kind.ends_with(text));
        let is_known = is_text || kind.is_empty() || kind == "application/octet-stream";
        let encoding = self.charset().unwrap_or(UTF_8);
        let (text, _, has_errors) = encoding.decode(self.body);
        // The end of an incomplete body may be a part of a character.
        let is_readable = !text.contains('\0') && (!has_errors || is_text || !self.is_complete);
        (is_text || is_known && is_readable).then(|| Cow::into_owned(text))
    }

    fn charset(&self) -> Option<&'static Encoding> {
        let kind = self.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let mut parameters = kind.split(';').skip(1).filter_map(|one| one.trim().split_once('='));
        let (_, charset) = parameters.find(|(name, _)| name.eq_ignore_ascii_case("charset"))?;
        Encoding::for_label(charset.trim_matches('"').as_bytes())
    }
}

enum Problem {
    NotJson,
    NothingThere,
}

fn json_text(text: &str, pointer: Option<&str>) -> Result<String, Problem> {
    let compacted = compact(text).ok_or(Problem::NotJson)?;
    let selected = match pointer {
        Some(pointer) => select(&compacted, pointer).ok_or(Problem::NothingThere)?,
        None => &compacted,
    };
    Ok(match count(selected) {
        Some(1) => format!("1 item\n{selected}"),
        Some(items) => format!("{items} items\n{selected}"),
        None => selected.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn result(kind: &'static str, body: &[u8], pointer: Option<&str>) -> ToolResult {
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let (headers, status) = (&headers, StatusCode::OK);
        ReceivedResponse { status, headers, body, is_complete: true, next_page: None }
            .into_result(pointer)
    }

    fn text(kind: &'static str, body: &[u8], pointer: Option<&str>) -> String {
        result(kind, body, pointer).to_text().into_owned()
    }

    #[test]
    fn json_is_compact_and_selected() {
        let json = b"{ \"data\": { \"items\": [1, 2.0] } }";
        assert_eq!(text("application/json", json, None), "{\"data\":{\"items\":[1,2.0]}}");
        assert_eq!(text("application/hal+json", json, Some("/data/items")), "2 items\n[1,2.0]");
        assert_eq!(text("", b"[ {} ]", None), "1 item\n[{}]");
        let missing = result("application/json", json, Some("/none"));
        assert!(missing.is_error && missing.to_text().contains("no value at /none"));
        assert_eq!(text("application/json", b"{ oops", None), "{ oops");
    }

    #[test]
    fn text_is_decoded_by_its_charset() {
        assert_eq!(text("text/plain; charset=iso-8859-1", b"caf\xe9", None), "caf\u{e9}");
        assert_eq!(text("text/html", "é".as_bytes(), None), "é");
        assert_eq!(text("", b"plain", None), "plain");
    }

    #[test]
    fn other_content_is_named() {
        assert_eq!(text("", b"", None), "(200: done, no content)");
        let binary = text("application/zip", b"PK\x03\x04\0", None);
        assert_eq!(binary, "(binary content: application/zip, 5 bytes; not shown)");
        assert!(text("", b"\xff\xfe\0", None).starts_with("(binary content: unknown type"));
        let image = result("image/png", b"\x89PNG", None);
        assert!(matches!(image.content.as_slice(), [ContentBlock::Image { .. }]));
        let large = text("image/png", &[0; MAX_IMAGE_BYTES + 1], None);
        assert!(large.starts_with("(binary content: image/png"), "{large}");
    }

    #[test]
    fn incomplete_body_and_next_page_are_noted() {
        let headers = HeaderMap::new();
        let received = ReceivedResponse {
            status: StatusCode::OK,
            headers: &headers,
            body: "é".as_bytes(),
            is_complete: false,
            next_page: Some("page=2".to_owned()),
        };
        let text = received.into_result(None).to_text().into_owned();
        assert_eq!(
            text,
            "é\n[the response exceeds 2 bytes; the rest was not read]\nnext page: page=2"
        );
    }
}
