//! Kinds of content.

/// What a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentKind {
    Html,
    Markdown,
    Text,
    Json,
    /// XML, which may be a feed.
    Xml,
    Pdf,
    /// Something without text.
    Binary(&'static str),
}

/// Bytes that are searched for signs of the kind.
const SNIFFED_BYTES: usize = 1024;

impl ContentKind {
    /// Determines the kind by the media type, or by the content if the type says nothing.
    pub(crate) fn of(media_type: &str, body: &[u8]) -> Self {
        let start = &body[..body.len().min(SNIFFED_BYTES)];
        if start.starts_with(b"%PDF-") {
            return Self::Pdf;
        }
        let declared = Self::declared(media_type);
        match declared {
            // Servers declare plain text when they know nothing, and XHTML as XML.
            Some(Self::Text | Self::Xml) | None if !start.is_empty() => {
                match Self::sniffed(start) {
                    Self::Text => declared.unwrap_or(Self::Text),
                    kind => kind,
                }
            }
            None => Self::Text,
            Some(kind) => kind,
        }
    }

    fn declared(media_type: &str) -> Option<Self> {
        let (kind, subtype) = media_type.split_once('/')?;
        Some(match (kind, subtype) {
            ("text", "html") | ("application", "xhtml+xml") => Self::Html,
            ("text", "markdown" | "x-markdown") => Self::Markdown,
            ("application", "pdf" | "x-pdf") => Self::Pdf,
            ("application" | "text", "json") => Self::Json,
            (_, "xml" | "rss" | "atom") => Self::Xml,
            (_, subtype) if subtype.ends_with("+json") => Self::Json,
            ("image", "svg+xml") => Self::Binary("a picture"),
            (_, subtype) if subtype.ends_with("+xml") => Self::Xml,
            ("text", _)
            | ("application", "javascript" | "x-ndjson" | "yaml" | "x-yaml" | "toml") => Self::Text,
            ("image", _) => Self::Binary("a picture"),
            ("audio", _) => Self::Binary("a sound recording"),
            ("video", _) => Self::Binary("a video"),
            ("font", _) => Self::Binary("a font"),
            ("application", "zip" | "gzip" | "x-tar" | "x-7z-compressed" | "x-rar-compressed") => {
                Self::Binary("an archive")
            }
            _ => return None,
        })
    }

    fn sniffed(start: &[u8]) -> Self {
        const SIGNATURES: [(&[u8], &str); 7] = [
            (b"\x89PNG", "a picture"),
            (b"\xff\xd8\xff", "a picture"),
            (b"GIF8", "a picture"),
            (b"PK\x03\x04", "an archive"),
            (b"\x1f\x8b", "an archive"),
            (b"OggS", "a sound recording"),
            (b"ID3", "a sound recording"),
        ];
        if let Some((_, name)) = SIGNATURES.iter().find(|(sign, _)| start.starts_with(sign)) {
            return Self::Binary(name);
        }
        let text = String::from_utf8_lossy(start).to_ascii_lowercase();
        let text = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
        let contains = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
        if text.starts_with('<') && contains(&["<rss", "<feed", "<rdf:rdf"]) {
            Self::Xml
        } else if text.starts_with('<') && contains(&["<!doctype html", "<html", "<head>", "<body"])
        {
            Self::Html
        } else if text.starts_with("<?xml") {
            Self::Xml
        } else if start.contains(&0) && !looks_like_utf16(start) {
            Self::Binary("a file without text")
        } else {
            Self::Text
        }
    }
}

/// Returns whether the bytes have a mark of UTF-16, or every other one is zero.
pub(super) fn looks_like_utf16(start: &[u8]) -> bool {
    start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") || zeros(start).is_some()
}

/// Position of the zero bytes of ASCII characters in UTF-16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZeroByte {
    First,
    Second,
}

/// Returns the position of the zero byte in pairs of bytes, if nearly all pairs agree.
pub(super) fn zeros(start: &[u8]) -> Option<ZeroByte> {
    let pairs = start[..start.len().min(SNIFFED_BYTES)].chunks_exact(2);
    let total = pairs.len();
    let (mut first, mut second) = (0, 0);
    for pair in pairs {
        first += usize::from(pair[0] == 0 && pair[1] != 0);
        second += usize::from(pair[1] == 0 && pair[0] != 0);
    }
    let is_most = |count: usize, other: usize| total >= 4 && other == 0 && count * 4 > total;
    match (is_most(first, second), is_most(second, first)) {
        (true, _) => Some(ZeroByte::First),
        (_, true) => Some(ZeroByte::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_type_and_content() {
        for (media_type, body, kind) in [
            ("text/html", "x", ContentKind::Html),
            ("application/xhtml+xml", "<?xml?>", ContentKind::Html),
            ("text/markdown", "# x", ContentKind::Markdown),
            ("text/plain", "<!DOCTYPE html><p>", ContentKind::Html),
            ("text/plain", "plain", ContentKind::Text),
            ("", "  <html>", ContentKind::Html),
            ("application/ld+json", "{}", ContentKind::Json),
            ("application/rss+xml", "<rss>", ContentKind::Xml),
            ("application/rss+xml", "<rss><![CDATA[<html>", ContentKind::Xml),
            ("application/xml", "<?xml version='1.0'?><html>", ContentKind::Html),
            ("application/xml", "<sitemap/>", ContentKind::Xml),
            ("", "<?xml version='1.0'?><feed>", ContentKind::Xml),
            ("", "<?xml version='1.0'?><!DOCTYPE x><html>", ContentKind::Html),
            ("application/octet-stream", "%PDF-1.7", ContentKind::Pdf),
            ("text/html", "%PDF-1.7", ContentKind::Pdf),
            ("image/png", "", ContentKind::Binary("a picture")),
            ("image/svg+xml", "<svg>", ContentKind::Binary("a picture")),
            ("application/octet-stream", "PK\u{3}\u{4}", ContentKind::Binary("an archive")),
            ("application/octet-stream", "a\0b\0\0\0", ContentKind::Binary("a file without text")),
            ("", "", ContentKind::Text),
        ] {
            assert_eq!(ContentKind::of(media_type, body.as_bytes()), kind, "{media_type} {body:?}");
        }
        let utf16: Vec<u8> = "plain text".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(ContentKind::of("", &utf16), ContentKind::Text);
    }
}
