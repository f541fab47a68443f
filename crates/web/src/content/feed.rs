//! RSS and Atom feeds as Markdown.

use quick_xml::{
    Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
};
use url::Url;

use crate::html::stripped;

/// Maximum number of entries that are listed.
const MAX_ENTRIES: usize = 200;
/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;
/// Maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 500;
/// Maximum text that is collected for one field, in bytes.
const MAX_FIELD_BYTES: usize = 64 * 1024;
/// Deepest nesting of elements.
const MAX_DEPTH: usize = 64;

/// A feed as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Feed {
    pub(super) title: String,
    pub(super) markdown: String,
}

/// Converts a feed. Returns `None` for other XML and for XML that is not well-formed before the first
/// entry. Entities that a document declares are not expanded.
pub(super) fn convert(xml: &str, url: &Url) -> Option<Feed> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = false;
    reader.config_mut().allow_unmatched_ends = true;
    reader.config_mut().allow_dangling_amp = true;
    let mut parser = FeedParser::default();
    while parser.entries.len() < MAX_ENTRIES {
        match reader.read_event() {
            Ok(Event::Start(start)) => parser.open(&start),
            Ok(Event::Empty(start)) => {
                parser.open(&start);
                parser.close();
            }
            Ok(Event::End(_)) => parser.close(),
            Ok(Event::Text(text)) => parser.text(&text.xml10_content()),
            Ok(Event::CData(text)) => parser.text(&text.xml10_content()),
            Ok(Event::GeneralRef(name)) => {
                let name = name.into_inner();
                let character = name.strip_prefix('#').and_then(character);
                match resolve_xml_entity(&name) {
                    Some(text) => parser.text(text),
                    None => parser.text(character.map(String::from).as_deref().unwrap_or(" ")),
                }
            }
            Ok(Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
        if !parser.may_be_feed() || parser.path.len() > MAX_DEPTH {
            break;
        }
    }
    parser.finish(url)
}

fn character(code: &str) -> Option<char> {
    let code = match code.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => code.parse().ok()?,
    };
    char::from_u32(code)
}

/// One entry, or the feed itself.
#[derive(Debug, Default)]
struct Entry {
    title: String,
    link: String,
    date: String,
    summary: String,
}

#[derive(Debug, Default)]
struct FeedParser {
    /// Local names of the open elements.
    path: Vec<String>,
    feed: Entry,
    entries: Vec<Entry>,
    entry: Option<Entry>,
    field: String,
}

impl FeedParser {
    /// Returns whether the document element, if there is one, is that of a feed.
    fn may_be_feed(&self) -> bool {
        self.path.first().is_none_or(|root| matches!(root.as_str(), "rss" | "feed" | "RDF"))
    }

    fn open(&mut self, start: &BytesStart<'_>) {
        let name = start.name();
        let name = name.as_ref();
        let local = name.rsplit(':').next().unwrap_or(name).to_owned();
        if matches!(local.as_str(), "item" | "entry") && self.entry.is_none() {
            self.entry = Some(Entry::default());
        }
        if local == "link" {
            self.open_link(start);
        }
        // An element inside a field belongs to its text.
        if !self.is_in_field() {
            self.field.clear();
        }
        self.path.push(local);
    }

    /// Atom has the address of a link in an attribute.
    fn open_link(&mut self, start: &BytesStart<'_>) {
        let attribute = |name| {
            let attribute = start.try_get_attribute(name).ok().flatten()?;
            Some(attribute.normalized_value(XmlVersion::Implicit1_0).ok()?.into_owned())
        };
        let is_page = attribute("rel").is_none_or(|rel| rel == "alternate");
        if let Some(href) = attribute("href").filter(|_| is_page) {
            let entry = self.entry.as_mut().unwrap_or(&mut self.feed);
            keep_first(&mut entry.link, &href);
        }
    }

    fn is_in_field(&self) -> bool {
        self.path
            .iter()
            .any(|name| matches!(name.as_str(), "content" | "summary" | "description" | "title"))
    }

    fn text(&mut self, text: &str) {
        if self.field.len() + text.len() <= MAX_FIELD_BYTES {
            self.field.push_str(text);
        }
    }

    fn close(&mut self) {
        let Some(name) = self.path.pop() else { return };
        if matches!(name.as_str(), "item" | "entry") {
            self.entries.extend(self.entry.take());
            return;
        }
        if self.is_in_field() {
            return;
        }
        // Titles of pictures and of text inputs are not those of the feed.
        let parent = self.path.last().map_or("", String::as_str);
        if !matches!(parent, "item" | "entry" | "channel" | "feed") {
            return;
        }
        let is_feed = matches!(parent, "channel" | "feed");
        let entry = match (&mut self.entry, is_feed) {
            (Some(entry), false) => entry,
            (None, true) => &mut self.feed,
            _ => return,
        };
        let field = std::mem::take(&mut self.field);
        match name.as_str() {
            "title" => keep_first(&mut entry.title, &field),
            "link" => keep_first(&mut entry.link, &field),
            "guid" if field.starts_with("http") => keep_first(&mut entry.link, &field),
            "pubDate" | "published" | "updated" | "date" => keep_first(&mut entry.date, &field),
            "description" | "summary" | "content" | "encoded" => {
                keep_first(&mut entry.summary, &field);
            }
            _ => {}
        }
    }

    fn finish(self, url: &Url) -> Option<Feed> {
        if self.entries.is_empty() && self.feed.title.is_empty() {
            return None;
        }
        let title = line(&self.feed.title, MAX_TITLE_CHARS);
        let mut markdown = format!("# {}\n\n", if title.is_empty() { "Feed" } else { &title });
        for entry in &self.entries {
            entry.write(&mut markdown, url);
        }
        let is_cut = self.entries.len() == MAX_ENTRIES;
        if is_cut {
            markdown.push_str(&format!("\nOnly the first {MAX_ENTRIES} entries are listed.\n"));
        }
        Some(Feed { title, markdown })
    }
}

impl Entry {
    fn write(&self, markdown: &mut String, url: &Url) {
        let title = line(&self.title, MAX_TITLE_CHARS);
        let title = if title.is_empty() { "Untitled" } else { &title };
        let link = url.join(self.link.trim()).ok().filter(|_| !self.link.trim().is_empty());
        match link.filter(|link| matches!(link.scheme(), "http" | "https")) {
            Some(link) => markdown.push_str(&format!("- [{}]({link})", escaped(title))),
            None => markdown.push_str(&format!("- {title}")),
        }
        let date = line(&self.date, 40);
        if !date.is_empty() {
            markdown.push_str(&format!(" — {date}"));
        }
        let summary = line(&self.summary, MAX_SUMMARY_CHARS);
        if !summary.is_empty() {
            markdown.push_str(&format!(": {summary}"));
        }
        markdown.push('\n');
    }
}

fn keep_first(kept: &mut String, value: &str) {
    if kept.trim().is_empty() {
        value.clone_into(kept);
    }
}

fn escaped(title: &str) -> String {
    title.replace('[', "\\[").replace(']', "\\]")
}

/// Returns the text of a field, which may contain HTML, on one line.
fn line(field: &str, max_chars: usize) -> String {
    let text = stripped(field);
    let words: Vec<_> = text.split_whitespace().collect();
    rockbot_contracts::outside_text::plain(&words.join(" "), max_chars)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(xml: &str) -> Option<Feed> {
        convert(xml, &Url::parse("https://example.com/feeds/all.xml").unwrap())
    }

    #[test]
    fn rss_becomes_a_list() {
        let feed = converted(
            r#"<?xml version="1.0"?><rss version="2.0" xmlns:content="c"><channel><title>News</title>
            <link>https://example.com/</link><image><title>Logo</title></image>
            <item><title>One &amp; [two]</title><link>/a?b=1&amp;c=2</link>
            <pubDate>Tue, 24 Nov 2026 08:00:00 GMT</pubDate>
            <description>&lt;p&gt;A &lt;b&gt;short&lt;/b&gt; text.&lt;/p&gt;</description></item>
            <item><title><![CDATA[Three]]></title><link>javascript:alert(1)</link></item>
            </channel></rss>"#,
        );
        let expected = "# News\n\n- [One & \\[two\\]](https://example.com/a?b=1&c=2) — Tue, 24 Nov 2026 \
                        08:00:00 GMT: A short text.\n- Three\n";
        assert_eq!(feed.unwrap(), Feed { title: "News".to_owned(), markdown: expected.to_owned() });
    }

    #[test]
    fn atom_becomes_a_list() {
        let feed = converted(
            r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title>
            <entry><title type="xhtml"><b>En</b>try</title><link rel="self" href="/no"/>
            <link rel="alternate" href="/entry"/><updated>2026-11-24</updated>
            <content type="xhtml"><div><p>Some <i>inner</i> text</p></div></content></entry></feed>"#,
        );
        let expected =
            "# Log\n\n- [Entry](https://example.com/entry) — 2026-11-24: Some inner text\n";
        assert_eq!(feed.unwrap().markdown, expected);
    }

    #[test]
    fn declared_entities_are_not_expanded() {
        let xml = r#"<!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><rss><channel>
            <title>T</title><item><title>x&b;y&#33;</title></item></channel></rss>"#;
        assert_eq!(converted(xml).unwrap().markdown, "# T\n\n- x y!\n");
    }

    #[test]
    fn other_xml_is_no_feed() {
        for xml in ["<sitemap><title>x</title></sitemap>", "", "no xml", "<rss>", "<rss/>"] {
            assert_eq!(converted(xml), None, "{xml}");
        }
    }

    #[test]
    fn entries_are_limited() {
        let items = "<item><title>x</title></item>".repeat(10_000);
        let feed = converted(&format!("<rss><channel>{items}")).unwrap();
        assert!(feed.markdown.ends_with("Only the first 200 entries are listed.\n"));
        assert!(feed.markdown.len() < 3000);
    }
}
